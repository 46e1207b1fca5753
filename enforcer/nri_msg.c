#include "enforcer/nri_msg.h"

#include <stdlib.h>
#include <string.h>

#include "enforcer/nri.pb-c.h"
#include "enforcer/ttrpc_mem.h"

/* A message is at most 4 MiB; unfolded, with its pointers, it may be this much. */
#define MESSAGE_BUDGET ((size_t)64 << 20)

#define WITH_NUL "(contains a NUL)"

enum shape {
	SHAPE_EMPTY,
	SHAPE_CONFIGURE,
	SHAPE_SYNCHRONIZE,
	SHAPE_CONTAINER,
	SHAPE_STATE_CHANGE,
	SHAPE_VALIDATE
};

struct method {
	const char *name;
	enum en_nri_method method;
	enum shape shape;
};

/* EMPTY stands for messages that are not looked into, too. */
static const struct method methods[] = {
	{"Configure", EN_NRI_CONFIGURE, SHAPE_CONFIGURE},
	{"Synchronize", EN_NRI_SYNCHRONIZE, SHAPE_SYNCHRONIZE},
	{"CreateContainer", EN_NRI_CREATE, SHAPE_CONTAINER},
	{"StartContainer", EN_NRI_START, SHAPE_CONTAINER},
	{"StopContainer", EN_NRI_STOP, SHAPE_CONTAINER},
	{"RemoveContainer", EN_NRI_REMOVE, SHAPE_CONTAINER},
	{"ValidateContainerAdjustment", EN_NRI_VALIDATE, SHAPE_VALIDATE},
	{"StateChange", EN_NRI_OTHER, SHAPE_STATE_CHANGE},
	{"Shutdown", EN_NRI_SHUTDOWN, SHAPE_EMPTY},
	{"RunPodSandbox", EN_NRI_OTHER, SHAPE_EMPTY},
	{"UpdatePodSandbox", EN_NRI_OTHER, SHAPE_EMPTY},
	{"PostUpdatePodSandbox", EN_NRI_OTHER, SHAPE_EMPTY},
	{"StopPodSandbox", EN_NRI_OTHER, SHAPE_EMPTY},
	{"RemovePodSandbox", EN_NRI_OTHER, SHAPE_EMPTY},
	{"PostCreateContainer", EN_NRI_OTHER, SHAPE_EMPTY},
	{"PostStartContainer", EN_NRI_OTHER, SHAPE_EMPTY},
	{"UpdateContainer", EN_NRI_OTHER, SHAPE_EMPTY},
	{"PostUpdateContainer", EN_NRI_OTHER, SHAPE_EMPTY},
};

const char *en_nri_method_name(enum en_nri_method m)
{
	static const char *const names[] = {
		[EN_NRI_CONFIGURE] = "Configure",
		[EN_NRI_SYNCHRONIZE] = "Synchronize",
		[EN_NRI_CREATE] = "CreateContainer",
		[EN_NRI_START] = "StartContainer",
		[EN_NRI_STOP] = "StopContainer",
		[EN_NRI_REMOVE] = "RemoveContainer",
		[EN_NRI_VALIDATE] = "ValidateContainerAdjustment",
		[EN_NRI_SHUTDOWN] = "Shutdown",
		[EN_NRI_OTHER] = "another event",
	};

	return names[m];
}

/* ---- requests ---- */

/* What reads one message. */
struct reader {
	struct en_nri_request *r;
	ProtobufCAllocator allocator;
	size_t len;
	const unsigned char *data;
	struct err *err;
};

static int no_memory(const struct reader *x)
{
	return err_set(x->err, ERR_NOMEM, "NRI: no memory for a message of %zu bytes", x->len);
}

static int unreadable(const struct reader *x)
{
	if (en_mem_failed(x->r->mem))
		return no_memory(x);
	return err_set(x->err, ERR_INVALID, "NRI: a message of %zu bytes cannot be read", x->len);
}

static void *take(const struct reader *x, size_t count, size_t size)
{
	return en_mem_alloc(x->r->mem, count * size);
}

/* Text that may hold a NUL; marker stands for such text. NULL: no memory. */
static const char *text_of(const struct reader *x, const ProtobufCBinaryData *b, const char *marker)
{
	if (marker != NULL && b->len > 0 && memchr(b->data, '\0', b->len) != NULL)
		return marker;
	return en_mem_text(x->r->mem, b->data, b->len);
}

static int read_pod(const struct reader *x, const En__Nri__PodSandbox *m, struct en_nri_pod *ret)
{
	struct st_kv *kv = take(x, m->n_annotations, sizeof(*kv));

	if (kv == NULL)
		return no_memory(x);
	for (size_t i = 0; i < m->n_annotations; i++) {
		const En__Nri__Annotation *a = m->annotations[i];

		kv[i].key = text_of(x, &a->key, WITH_NUL);
		kv[i].value = text_of(x, &a->value, WITH_NUL);
		if (kv[i].key == NULL || kv[i].value == NULL)
			return no_memory(x);
	}
	*ret = (struct en_nri_pod){
		.id = m->id,
		.spec = {.uid = m->uid[0] != '\0' ? m->uid : m->id,
			 .ns = m->namespace_,
			 .name = m->name,
			 .annotation_count = m->n_annotations,
			 .annotations = kv},
	};
	return 0;
}

static int read_mounts(const struct reader *x, size_t count, En__Nri__Mount *const *m,
		       size_t *ret_count, const struct en_mount_seen **ret)
{
	struct en_mount_seen *mounts = take(x, count, sizeof(*mounts));

	if (mounts == NULL)
		return no_memory(x);
	for (size_t i = 0; i < count; i++)
		mounts[i] = (struct en_mount_seen){m[i]->source, m[i]->destination};
	*ret = mounts;
	*ret_count = count;
	return 0;
}

static int read_container(const struct reader *x, const En__Nri__Container *m,
			  struct en_nri_container *ret)
{
	const char **env = take(x, m->n_env, sizeof(*env));

	if (env == NULL)
		return no_memory(x);
	for (size_t i = 0; i < m->n_env; i++) {
		env[i] = text_of(x, &m->env[i], NULL);
		if (env[i] == NULL)
			return no_memory(x);
	}
	*ret = (struct en_nri_container){
		.id = m->id,
		.pod_id = m->pod_sandbox_id,
		.state = m->state,
		.pid = m->pid,
		.cgroups_path = m->lnx != NULL ? m->lnx->cgroups_path : "",
		.seen = {.name = m->name, .env = {m->n_env, env}},
	};
	return read_mounts(x, m->n_mounts, m->mounts, &ret->seen.mount_count, &ret->seen.mounts);
}

static int read_both(const struct reader *x, size_t pod_count, En__Nri__PodSandbox *const *pods,
		     size_t container_count, En__Nri__Container *const *containers)
{
	struct en_nri_request *r = x->r;
	int rc = 0;

	r->pods = take(x, pod_count, sizeof(*r->pods));
	r->containers = take(x, container_count, sizeof(*r->containers));
	if (r->pods == NULL || r->containers == NULL)
		return no_memory(x);
	for (size_t i = 0; rc == 0 && i < pod_count; i++)
		rc = read_pod(x, pods[i], &r->pods[i]);
	for (size_t i = 0; rc == 0 && i < container_count; i++)
		rc = read_container(x, containers[i], &r->containers[i]);
	r->pod_count = pod_count;
	r->container_count = container_count;
	return rc;
}

static int read_one(const struct reader *x, En__Nri__PodSandbox *pod, En__Nri__Container *container)
{
	if (pod == NULL || container == NULL)
		return err_set(x->err, ERR_INVALID, "NRI: %s without %s",
			       en_nri_method_name(x->r->method), pod == NULL ? "pod" : "container");
	return read_both(x, 1, &pod, 1, &container);
}

static int read_configure(struct reader *x)
{
	En__Nri__ConfigureRequest *m =
		en__nri__configure_request__unpack(&x->allocator, x->len, x->data);

	if (m == NULL)
		return unreadable(x);
	x->r->runtime = m->runtime_name;
	x->r->runtime_version = m->runtime_version;
	x->r->nri_version = m->nri_version;
	x->r->request_timeout_ms = m->request_timeout_ms;
	return 0;
}

static int read_synchronize(struct reader *x)
{
	En__Nri__SynchronizeRequest *m =
		en__nri__synchronize_request__unpack(&x->allocator, x->len, x->data);

	if (m == NULL)
		return unreadable(x);
	x->r->more = m->more;
	return read_both(x, m->n_pods, m->pods, m->n_containers, m->containers);
}

static int read_container_request(struct reader *x)
{
	En__Nri__ContainerRequest *m =
		en__nri__container_request__unpack(&x->allocator, x->len, x->data);

	return m != NULL ? read_one(x, m->pod, m->container) : unreadable(x);
}

static int read_state_change(struct reader *x)
{
	En__Nri__StateChangeEvent *m =
		en__nri__state_change_event__unpack(&x->allocator, x->len, x->data);

	if (m == NULL)
		return unreadable(x);
	switch (m->event) {
	case EN_NRI_EVENT_START:
		x->r->method = EN_NRI_START;
		break;
	case EN_NRI_EVENT_STOP:
		x->r->method = EN_NRI_STOP;
		break;
	case EN_NRI_EVENT_REMOVE:
		x->r->method = EN_NRI_REMOVE;
		break;
	default:
		return 0;
	}
	return read_one(x, m->pod, m->container);
}

static int read_merged(const struct reader *x, const En__Nri__ContainerAdjustment *m)
{
	struct en_merged *ret = &x->r->merged;
	struct st_kv *env = take(x, m->n_env, sizeof(*env));
	const char **cdi = take(x, m->n_cdi_devices, sizeof(*cdi));
	size_t hooks = m->hooks != NULL ? m->hooks->n_create_runtime : 0;
	const char **paths = take(x, hooks, sizeof(*paths));

	if (env == NULL || cdi == NULL || paths == NULL)
		return no_memory(x);
	for (size_t i = 0; i < m->n_env; i++)
		env[i] = (struct st_kv){m->env[i]->key, m->env[i]->value};
	for (size_t i = 0; i < m->n_cdi_devices; i++)
		cdi[i] = m->cdi_devices[i]->name;
	for (size_t i = 0; i < hooks; i++)
		paths[i] = m->hooks->create_runtime[i]->path;
	*ret = (struct en_merged){
		.env_count = m->n_env,
		.env = env,
		.cdi = {m->n_cdi_devices, cdi},
		.hook_paths = {hooks, paths},
	};
	return read_mounts(x, m->n_mounts, m->mounts, &ret->mount_count, &ret->mounts);
}

static int read_validate(struct reader *x)
{
	En__Nri__ValidateRequest *m =
		en__nri__validate_request__unpack(&x->allocator, x->len, x->data);
	int rc;

	if (m == NULL)
		return unreadable(x);
	rc = read_one(x, m->pod, m->container);
	return rc == 0 && m->adjust != NULL ? read_merged(x, m->adjust) : rc;
}

static int read_shape(struct reader *x, enum shape shape)
{
	switch (shape) {
	case SHAPE_CONFIGURE:
		return read_configure(x);
	case SHAPE_SYNCHRONIZE:
		return read_synchronize(x);
	case SHAPE_CONTAINER:
		return read_container_request(x);
	case SHAPE_STATE_CHANGE:
		return read_state_change(x);
	case SHAPE_VALIDATE:
		return read_validate(x);
	case SHAPE_EMPTY:
		break;
	}
	return 0;
}

static const struct method *method_find(const struct en_ttrpc_call *call)
{
	if (strcmp(call->service, EN_NRI_PLUGIN_SERVICE) != 0)
		return NULL;
	for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
		if (strcmp(methods[i].name, call->method) == 0)
			return &methods[i];
	}
	return NULL;
}

int en_nri_request_read(const struct en_ttrpc_call *call, struct en_nri_request **ret,
			struct err *err)
{
	const struct method *m = method_find(call);
	struct en_mem *mem;
	struct reader x = {.len = call->len, .data = call->payload, .err = err};
	int rc;

	if (m == NULL)
		return err_set(err, ERR_NOT_FOUND, "%.100s/%.100s", call->service, call->method);
	mem = en_mem_new(MESSAGE_BUDGET);
	if (mem == NULL || (x.r = en_mem_alloc(mem, sizeof(*x.r))) == NULL) {
		en_mem_free(mem);
		return no_memory(&x);
	}
	*x.r = (struct en_nri_request){
		.method = m->method,
		.stream = call->stream,
		.timeout_ns = call->timeout_ns,
		.mem = mem,
	};
	x.allocator = en_mem_allocator(mem);
	rc = read_shape(&x, m->shape);
	if (rc == 0)
		*ret = x.r;
	else
		en_mem_free(mem);
	return rc;
}

void en_nri_request_free(struct en_nri_request *r)
{
	if (r != NULL)
		en_mem_free(r->mem);
}

/* ---- answers ---- */

static int put(struct buf *b, const ProtobufCMessage *m, struct err *err)
{
	size_t len = protobuf_c_message_get_packed_size(m);

	if (!buf_reserve(b, len))
		return err_set(err, ERR_NOMEM, "NRI: no memory");
	if (len > 0)
		b->len += protobuf_c_message_pack(m, (uint8_t *)b->data + b->len);
	return 0;
}

/* protobuf-c has no const in its structs; what is packed is not written to. */
static char *packed_text(const char *s)
{
	char *t;

	memcpy(&t, &s, sizeof(t));
	return t;
}

int en_nri_put_register(struct buf *b, const char *name, const char *idx, struct err *err)
{
	En__Nri__RegisterPluginRequest m;

	en__nri__register_plugin_request__init(&m);
	m.plugin_name = packed_text(name);
	m.plugin_idx = packed_text(idx);
	return put(b, &m.base, err);
}

int en_nri_put_configure(struct buf *b, int32_t events, struct err *err)
{
	En__Nri__ConfigureResponse m;

	en__nri__configure_response__init(&m);
	m.events = events;
	return put(b, &m.base, err);
}

int en_nri_put_synchronize(struct buf *b, bool more, struct err *err)
{
	En__Nri__SynchronizeResponse m;

	en__nri__synchronize_response__init(&m);
	m.more = more;
	return put(b, &m.base, err);
}

int en_nri_put_validate(struct buf *b, bool reject, const char *reason, struct err *err)
{
	En__Nri__ValidateResponse m;

	en__nri__validate_response__init(&m);
	m.reject = reject;
	m.reason = packed_text(reject ? reason : "");
	return put(b, &m.base, err);
}

/* The messages of one adjustment, and the pointers between them. */
struct packed_adjust {
	En__Nri__CreateContainerResponse response;
	En__Nri__ContainerAdjustment adjust;
	En__Nri__KeyValue env[2 * EN_ENV_MAX], *env_at[2 * EN_ENV_MAX];
	char names[EN_ENV_MAX][64]; /* "-KEY" */
	En__Nri__Mount mounts[EN_MOUNTS_MAX], *mount_at[EN_MOUNTS_MAX];
	char *options[EN_MOUNTS_MAX][EN_MOUNT_OPTIONS_MAX];
	En__Nri__CDIDevice cdi[ST_GPUS_MAX], *cdi_at[ST_GPUS_MAX];
	En__Nri__Hooks hooks;
	En__Nri__Hook hook, *hook_at[1];
	char *hook_args[EN_HOOK_ARGS_MAX];
	En__Nri__OptionalInt timeout;
};

static void pack_env(struct packed_adjust *p, const struct en_env *e, size_t i)
{
	size_t n = p->adjust.n_env, len = strlen(e->key);

	p->names[i][0] = '-';
	memcpy(p->names[i] + 1, e->key, len < sizeof(p->names[i]) - 1 ? len : 0);
	en__nri__key_value__init(&p->env[n]);
	p->env[n].key = p->names[i];
	p->env_at[n] = &p->env[n];
	n++;
	if (e->value != NULL) {
		en__nri__key_value__init(&p->env[n]);
		p->env[n].key = packed_text(e->key);
		p->env[n].value = e->value;
		p->env_at[n] = &p->env[n];
		n++;
	}
	p->adjust.n_env = n;
}

static void pack_mount(struct packed_adjust *p, const struct en_mount *m, size_t i)
{
	En__Nri__Mount *out = &p->mounts[i];

	en__nri__mount__init(out);
	out->source = m->source;
	out->destination = packed_text(m->target);
	out->type = packed_text(m->type);
	for (int k = 0; k < EN_MOUNT_OPTIONS_MAX && m->options[k] != NULL; k++)
		p->options[i][out->n_options++] = packed_text(m->options[k]);
	out->options = p->options[i];
	p->mount_at[i] = out;
}

static void pack_hook(struct packed_adjust *p, const struct en_adjust *a)
{
	en__nri__hooks__init(&p->hooks);
	en__nri__hook__init(&p->hook);
	en__nri__optional_int__init(&p->timeout);
	p->timeout.value = a->hook_timeout_s;
	p->hook.path = a->hook_path;
	p->hook.n_args = a->hook_arg_count;
	memcpy(p->hook_args, a->hook_args, sizeof(p->hook_args));
	p->hook.args = p->hook_args;
	p->hook.timeout = a->hook_timeout_s > 0 ? &p->timeout : NULL;
	p->hook_at[0] = &p->hook;
	p->hooks.n_create_runtime = 1;
	p->hooks.create_runtime = p->hook_at;
	p->adjust.hooks = &p->hooks;
}

int en_nri_put_create(struct buf *b, const struct en_adjust *a, struct err *err)
{
	struct packed_adjust *p = calloc(1, sizeof(*p));
	int rc;

	if (p == NULL)
		return err_set(err, ERR_NOMEM, "NRI: no memory");
	en__nri__create_container_response__init(&p->response);
	en__nri__container_adjustment__init(&p->adjust);
	for (size_t i = 0; i < a->env_count; i++)
		pack_env(p, &a->env[i], i);
	p->adjust.env = p->env_at;
	for (size_t i = 0; i < a->mount_count; i++)
		pack_mount(p, &a->mounts[i], i);
	p->adjust.n_mounts = a->mount_count;
	p->adjust.mounts = p->mount_at;
	for (size_t i = 0; i < a->cdi_count; i++) {
		en__nri__cdidevice__init(&p->cdi[i]);
		p->cdi[i].name = a->cdi[i];
		p->cdi_at[i] = &p->cdi[i];
	}
	p->adjust.n_cdi_devices = a->cdi_count;
	p->adjust.cdi_devices = p->cdi_at;
	if (a->hook_path != NULL)
		pack_hook(p, a);
	if (a->env_count + a->mount_count + a->cdi_count > 0 || a->hook_path != NULL)
		p->response.adjust = &p->adjust;
	rc = put(b, &p->response.base, err);
	free(p);
	return rc;
}
