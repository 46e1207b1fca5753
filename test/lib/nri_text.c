#include "test/lib/nri_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "enforcer/nri.pb-c.h"
#include "enforcer/ttrpc.pb-c.h"
#include "test/lib/go_peer.h"

#define VECTORS "test/unit/nri-vectors.txt"

/* Everything made for one message is kept until it is packed. */
static _Thread_local void *kept[65536];
static _Thread_local size_t kept_count;

static void *make(size_t size)
{
	void *p = calloc(1, size + 1);

	if (p == NULL || kept_count == sizeof(kept) / sizeof(kept[0]))
		abort();
	kept[kept_count++] = p;
	return p;
}

static void forget_all(void)
{
	while (kept_count > 0)
		free(kept[--kept_count]);
}

static char *text(const char *s)
{
	return s != NULL ? memcpy(make(strlen(s)), s, strlen(s) + 1) : make(0);
}

static ProtobufCBinaryData bytes(const char *s)
{
	return (ProtobufCBinaryData){strlen(s), (uint8_t *)text(s)};
}

/* Packs and frees. */
static void put(struct buf *b, const ProtobufCMessage *m)
{
	size_t len = protobuf_c_message_get_packed_size(m);

	if (!buf_reserve(b, len + 1))
		abort();
	protobuf_c_message_pack(m, (uint8_t *)b->data + b->len);
	b->len += len;
	forget_all();
}

static En__Nri__PodSandbox *pod_of(const struct nt_pod *p)
{
	En__Nri__PodSandbox *m = make(sizeof(*m));

	en__nri__pod_sandbox__init(m);
	m->id = text(p->id);
	m->name = text(p->name);
	m->uid = text(p->uid);
	m->namespace_ = text(p->ns);
	m->n_annotations = p->annotation_count;
	m->annotations = make(p->annotation_count * sizeof(void *));
	for (size_t i = 0; i < p->annotation_count; i++) {
		En__Nri__Annotation *a = make(sizeof(*a));

		en__nri__annotation__init(a);
		a->key = bytes(p->annotations[i].key);
		a->value = bytes(p->annotations[i].value);
		m->annotations[i] = a;
	}
	return m;
}

static En__Nri__Container *container_of(const struct nt_container *c)
{
	En__Nri__Container *m = make(sizeof(*m));

	en__nri__container__init(m);
	m->id = text(c->id);
	m->pod_sandbox_id = text(c->pod_id);
	m->name = text(c->name);
	m->state = c->state;
	m->pid = c->pid;
	m->env = make(NT_LIST_MAX * sizeof(m->env[0]));
	for (; m->n_env < NT_LIST_MAX && c->env[m->n_env] != NULL; m->n_env++)
		m->env[m->n_env] = bytes(c->env[m->n_env]);
	m->mounts = make(NT_LIST_MAX * sizeof(void *));
	for (; m->n_mounts < NT_LIST_MAX && c->mounts[m->n_mounts].target != NULL; m->n_mounts++) {
		En__Nri__Mount *mount = make(sizeof(*mount));

		en__nri__mount__init(mount);
		mount->source = text(c->mounts[m->n_mounts].source);
		mount->destination = text(c->mounts[m->n_mounts].target);
		m->mounts[m->n_mounts] = mount;
	}
	if (c->cgroups_path != NULL) {
		m->lnx = make(sizeof(*m->lnx));
		en__nri__linux_container__init(m->lnx);
		m->lnx->cgroups_path = text(c->cgroups_path);
	}
	return m;
}

void nt_configure(struct buf *b, const char *runtime, const char *version, const char *nri_version)
{
	En__Nri__ConfigureRequest m;

	en__nri__configure_request__init(&m);
	m.runtime_name = text(runtime);
	m.runtime_version = text(version);
	m.nri_version = text(nri_version);
	m.registration_timeout_ms = 5000;
	m.request_timeout_ms = 2000;
	put(b, &m.base);
}

void nt_container(struct buf *b, const struct nt_pod *pod, const struct nt_container *c)
{
	En__Nri__ContainerRequest m;

	en__nri__container_request__init(&m);
	m.pod = pod != NULL ? pod_of(pod) : NULL;
	m.container = c != NULL ? container_of(c) : NULL;
	put(b, &m.base);
}

void nt_state_change(struct buf *b, int event, const struct nt_pod *pod,
		     const struct nt_container *c)
{
	En__Nri__StateChangeEvent m;

	en__nri__state_change_event__init(&m);
	m.event = event;
	m.pod = pod != NULL ? pod_of(pod) : NULL;
	m.container = c != NULL ? container_of(c) : NULL;
	put(b, &m.base);
}

void nt_synchronize(struct buf *b, size_t pod_count, const struct nt_pod *pods,
		    size_t container_count, const struct nt_container *containers, bool more)
{
	En__Nri__SynchronizeRequest m;

	en__nri__synchronize_request__init(&m);
	m.more = more;
	m.pods = make((pod_count + 1) * sizeof(void *));
	m.containers = make((container_count + 1) * sizeof(void *));
	for (; m.n_pods < pod_count; m.n_pods++)
		m.pods[m.n_pods] = pod_of(&pods[m.n_pods]);
	for (; m.n_containers < container_count; m.n_containers++)
		m.containers[m.n_containers] = container_of(&containers[m.n_containers]);
	put(b, &m.base);
}

void nt_validate(struct buf *b, const struct nt_pod *pod, const struct nt_container *c,
		 const struct buf *adjust)
{
	En__Nri__CreateContainerResponse *r = en__nri__create_container_response__unpack(
		NULL, adjust->len, (const uint8_t *)adjust->data);
	En__Nri__ValidateRequest m;

	if (r == NULL)
		abort();
	en__nri__validate_request__init(&m);
	m.pod = pod_of(pod);
	m.container = container_of(c);
	m.adjust = r->adjust;
	put(b, &m.base);
	en__nri__create_container_response__free_unpacked(r, NULL);
}

void nt_call(struct buf *out, uint32_t stream, const char *method, const struct buf *payload,
	     int64_t timeout_ns)
{
	En__Ttrpc__Request m;
	struct buf b = BUF_INIT;

	en__ttrpc__request__init(&m);
	m.service = text("nri.pkg.api.v1alpha1.Plugin");
	m.method = text(method);
	m.payload = (ProtobufCBinaryData){payload->len, (uint8_t *)payload->data};
	m.timeout_nano = timeout_ns;
	put(&b, &m.base);
	go_put_message(out, 1, stream, 1, b.data, b.len);
	buf_fini(&b);
}

int nt_answer(const void *data, size_t len, struct buf *ret, char *text_ret, size_t text_cap)
{
	En__Ttrpc__Response *m = en__ttrpc__response__unpack(NULL, len, data);
	int code;

	if (m == NULL)
		abort();
	code = m->status != NULL ? m->status->code : 0;
	if (text_ret != NULL)
		snprintf(text_ret, text_cap, "%s", m->status != NULL ? m->status->message : "");
	buf_put(ret, m->payload.data, m->payload.len);
	en__ttrpc__response__free_unpacked(m, NULL);
	return code;
}

/* ---- vectors ---- */

static int hex_digit(char c)
{
	const char *digits = "0123456789abcdef", *at = c != '\0' ? strchr(digits, c) : NULL;

	return at != NULL ? (int)(at - digits) : -1;
}

/* "label | direction | length | hex"; the length is checked. */
static void vector_read(char *line, const char **ret_label, bool *ret_to_plugin, struct buf *ret)
{
	char *at = line, *field[4];

	for (int i = 0; i < 4; i++) {
		char *end = strstr(at, " | ");

		field[i] = at;
		if (end != NULL) {
			*end = '\0';
			at = end + 3;
		} else if (i < 3) {
			abort();
		}
	}
	*ret_label = field[0];
	*ret_to_plugin = strcmp(field[1], "to_plugin") == 0;
	buf_reset(ret);
	for (const char *p = field[3]; hex_digit(p[0]) >= 0; p += p[2] == ' ' ? 3 : 2)
		buf_putc(ret, (char)(hex_digit(p[0]) * 16 + hex_digit(p[1])));
	if (ret->len != strtoul(field[2], NULL, 10))
		abort();
}

size_t nt_vectors(void (*fn)(void *ctx, const char *label, bool to_plugin, const struct buf *bytes),
		  void *ctx)
{
	FILE *f = fopen(VECTORS, "r");
	struct buf b = BUF_INIT;
	char *line = NULL;
	size_t cap = 0, count = 0;

	if (f == NULL)
		abort();
	while (getline(&line, &cap, f) > 0) {
		const char *label;
		bool to_plugin;

		if (line[0] == '#' || line[0] == '\n')
			continue;
		vector_read(line, &label, &to_plugin, &b);
		fn(ctx, label, to_plugin, &b);
		count++;
	}
	free(line);
	fclose(f);
	buf_fini(&b);
	return count;
}

struct wanted {
	const char *label;
	struct buf *ret;
	bool found;
};

static void keep_wanted(void *ctx, const char *label, bool to_plugin, const struct buf *b)
{
	struct wanted *w = ctx;

	(void)to_plugin;
	if (strcmp(label, w->label) != 0)
		return;
	buf_reset(w->ret);
	buf_put(w->ret, b->data, b->len);
	w->found = true;
}

void nt_vector(const char *label, struct buf *ret)
{
	struct wanted w = {label, ret, false};

	nt_vectors(keep_wanted, &w);
	if (!w.found)
		abort();
}
