#include "replay/trace.h"

#include <stdlib.h>
#include <string.h>

#include "base/arith.h"
#include "base/file.h"
#include "base/hash.h"
#include "replay/kubectl.h"
#include "replay/map.h"
#include "replay/openb.h"

#define FILE_MAX ((size_t)4 << 30)
#define FIRST_CHAINS 1024

void rp_trace_init(struct rp_trace *t)
{
	*t = (struct rp_trace){.unit_mib = RP_GPU_UNITS};
}

int rp_trace_open(struct rp_trace *t, struct err *err)
{
	t->pod_names = strpool_new();
	t->node_names = strpool_new();
	t->models = strpool_new();
	if (t->pod_names == NULL || t->node_names == NULL || t->models == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	return 0;
}

void rp_trace_fini(struct rp_trace *t)
{
	strpool_free(t->pod_names);
	strpool_free(t->node_names);
	strpool_free(t->models);
	free(t->pods);
	free(t->stays);
	free(t->shapes);
	free(t->chains);
	free(t->nodes);
	for (size_t i = 0; i < 2; i++) {
		free(t->json[i].data);
		free(t->json[i].path);
	}
	rp_trace_init(t);
}

/* Room for one more of `size` bytes; false: no memory. */
static bool grow(void **items, size_t count, size_t *cap, size_t size)
{
	size_t want = *cap > 0 ? 2 * *cap : 64;
	void *more;

	if (count < *cap)
		return true;
	more = reallocarray(*items, want, size);
	if (more == NULL)
		return false;
	*items = more;
	*cap = want;
	return true;
}

static int out_of_memory(struct err *err)
{
	return err_set(err, ERR_NOMEM, "out of memory");
}

int rp_trace_add_node(struct rp_trace *t, const char *name, size_t len, const struct rp_node *n,
		      struct err *err)
{
	void *nodes = t->nodes;
	bool room = grow(&nodes, t->node_count, &t->node_cap, sizeof(*t->nodes));
	uint32_t id;

	t->nodes = nodes;
	if (!room)
		return out_of_memory(err);
	id = strpool_intern(t->node_names, name, len);
	if (id == STRPOOL_NONE)
		return out_of_memory(err);
	if (id < t->node_count)
		return err_set(err, ERR_EXISTS, "node \"%.*s\" occurs twice", (int)len, name);
	t->nodes[t->node_count++] = *n;
	t->gpu_milli += (int64_t)n->gpu_count * RP_GPU_UNITS;
	return 0;
}

int rp_trace_add_pod(struct rp_trace *t, const char *name, size_t len, uint32_t shape,
		     struct err *err)
{
	void *pods = t->pods;
	bool room = grow(&pods, t->pod_count, &t->pod_cap, sizeof(*t->pods));
	uint32_t id;

	t->pods = pods;
	if (!room)
		return out_of_memory(err);
	id = strpool_intern(t->pod_names, name, len);
	if (id == STRPOOL_NONE)
		return out_of_memory(err);
	if (id < t->pod_count)
		return err_set(err, ERR_EXISTS, "pod \"%.*s\" occurs twice", (int)len, name);
	t->pods[t->pod_count++] = shape;
	t->shapes[shape].count++;
	return 0;
}

int rp_trace_set_stay(struct rp_trace *t, struct rp_stay stay, struct err *err)
{
	if (t->stay_cap < t->pod_cap) {
		struct rp_stay *more = reallocarray(t->stays, t->pod_cap, sizeof(*more));

		if (more == NULL)
			return out_of_memory(err);
		for (size_t i = t->stay_cap; i < t->pod_cap; i++)
			more[i] = (struct rp_stay){RP_TIME_UNKNOWN, RP_TIME_UNKNOWN};
		t->stays = more;
		t->stay_cap = t->pod_cap;
	}
	t->stays[t->pod_count - 1] = stay;
	return 0;
}

struct rp_stay rp_trace_stay(const struct rp_trace *t, uint32_t pod)
{
	if (pod >= t->stay_cap)
		return (struct rp_stay){RP_TIME_UNKNOWN, RP_TIME_UNKNOWN};
	return t->stays[pod];
}

/* Only what usually tells requests apart; equality is by all bytes. */
static uint64_t shape_hash(const struct st_request *req)
{
	const struct st_item *it = &req->items[0];
	const int64_t key[] = {req->cpu_milli, req->mem_mib,    req->item_count, it->kind,
			       it->count,      it->request_mib, it->request_nano};
	uint64_t h = 0;

	for (size_t i = 0; i < sizeof(key) / sizeof(key[0]); i++)
		h = (h ^ (uint64_t)key[i]) * UINT64_C(0x9e3779b97f4a7c15);
	return hash_str(req->product, h);
}

static bool grow_chains(struct rp_trace *t)
{
	size_t want = t->chain_count > 0 ? 2 * t->chain_count : FIRST_CHAINS;
	uint32_t *chains;

	if (t->shape_count < t->chain_count)
		return true;
	chains = calloc(want, sizeof(*chains));
	if (chains == NULL)
		return false;
	for (uint32_t i = 0; i < t->shape_count; i++) {
		size_t slot = shape_hash(&t->shapes[i].req) & (want - 1);

		t->shapes[i].next = chains[slot];
		chains[slot] = i + 1;
	}
	free(t->chains);
	t->chains = chains;
	t->chain_count = want;
	return true;
}

/* "3g.40gb" takes three sevenths of the compute of a GPU; its memory share is near that. */
static int64_t mig_milli(const char *profile)
{
	int64_t slices = profile[0] >= '1' && profile[0] <= '9' ? profile[0] - '0' : 1;

	return arith_min(slices * RP_GPU_UNITS / 7, RP_GPU_UNITS);
}

static int64_t item_milli(const struct rp_trace *t, const struct st_item *it)
{
	if (it->kind == ST_KIND_WHOLE)
		return RP_GPU_UNITS;
	if (it->kind == ST_KIND_MIG)
		return mig_milli(it->profile);
	if (it->request_nano > 0)
		return it->request_nano / (ST_NANO / RP_GPU_UNITS);
	return arith_mul_div_floor(it->request_mib, RP_GPU_UNITS, t->unit_mib);
}

static void measure_shape(const struct rp_trace *t, struct rp_shape *s)
{
	int64_t devices = 0;
	bool whole = false;

	for (unsigned i = 0; i < s->req.item_count; i++) {
		const struct st_item *it = &s->req.items[i];
		int64_t milli = item_milli(t, it);

		s->milli += milli * it->count;
		s->device_milli = arith_max(s->device_milli, milli);
		devices += it->count;
		whole = whole || it->kind == ST_KIND_WHOLE;
	}
	s->kind = devices == 0  ? RP_CPU_ONLY
		  : devices > 1 ? RP_MULTI_GPU
		  : whole       ? RP_ONE_GPU
				: RP_SHARED;
}

uint32_t rp_trace_shape(struct rp_trace *t, const struct st_request *req)
{
	uint64_t hash = shape_hash(req);
	void *shapes = t->shapes;
	struct rp_shape *s;
	size_t slot;
	bool room;

	if (t->chain_count > 0)
		for (uint32_t i = t->chains[hash & (t->chain_count - 1)]; i != 0;
		     i = t->shapes[i - 1].next)
			/* NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): zeroed before use */
			if (memcmp(&t->shapes[i - 1].req, req, sizeof(*req)) == 0)
				return i - 1;
	room = grow(&shapes, t->shape_count, &t->shape_cap, sizeof(*t->shapes));
	t->shapes = shapes;
	if (!room || t->shape_count >= UINT32_MAX - 1 || !grow_chains(t))
		return UINT32_MAX;
	s = &t->shapes[t->shape_count];
	memset(s, 0, sizeof(*s));
	memcpy(&s->req, req, sizeof(*req));
	measure_shape(t, s);
	slot = hash & (t->chain_count - 1);
	s->next = t->chains[slot];
	t->chains[slot] = (uint32_t)++t->shape_count;
	return (uint32_t)t->shape_count - 1;
}

static bool looks_like_json(const char *text, size_t len)
{
	size_t i = 0;

	while (i < len && (text[i] == ' ' || text[i] == '\t' || text[i] == '\n' || text[i] == '\r'))
		i++;
	return i < len && (text[i] == '{' || text[i] == '[');
}

static int read_text(const char *path, struct rp_text *ret, struct err *err)
{
	int rc = file_read(path, FILE_MAX, &ret->data, &ret->len, err);

	if (rc < 0)
		return rc;
	ret->path = strdup(path);
	return ret->path != NULL ? 0 : out_of_memory(err);
}

static void text_fini(struct rp_text *x)
{
	free(x->data);
	free(x->path);
	*x = (struct rp_text){0};
}

static int load_csv_pods(struct rp_trace *t, struct rp_text *pods, struct err *err)
{
	int rc;

	t->fractions = rp_trace_is_json(t);
	rc = t->pod_map != NULL ? rp_map_pods(t->pod_map, t, pods->path, pods->data, pods->len, err)
				: rp_openb_pods(t, pods->path, pods->data, pods->len, err);
	text_fini(pods);
	return rc;
}

/* Both texts are read; pods->path is NULL where it is the nodes' file. */
static int load_texts(struct rp_trace *t, struct rp_text *nodes, struct rp_text *pods,
		      rp_note_fn note, void *ctx, struct err *err)
{
	bool pods_json = pods->data != NULL && looks_like_json(pods->data, pods->len);
	int rc;

	if (!looks_like_json(nodes->data, nodes->len)) {
		if (pods->data == NULL)
			return err_set(err, ERR_INVALID,
				       "%s: one file for nodes and pods must be a cluster in JSON",
				       nodes->path);
		if (pods_json)
			return err_set(err, ERR_INVALID,
				       "%s: pods in JSON need the nodes in JSON too, %s is a table",
				       pods->path, nodes->path);
		rc = t->node_map != NULL
			     ? rp_map_nodes(t->node_map, t, nodes->path, nodes->data, nodes->len,
					    err)
			     : rp_openb_nodes(t, nodes->path, nodes->data, nodes->len, err);
		return rc < 0 ? rc : load_csv_pods(t, pods, err);
	}
	t->json[0] = *nodes;
	*nodes = (struct rp_text){0};
	if (pods_json) {
		t->json[1] = *pods;
		*pods = (struct rp_text){0};
	}
	rc = rp_kubectl_load(t, pods->data == NULL, note, ctx, err);
	if (rc == 0 && pods->data != NULL)
		rc = load_csv_pods(t, pods, err);
	if (rc == 0 && t->pod_count == 0)
		return err_set(err, ERR_INVALID, "%s: no pending pods",
			       t->json[pods_json ? 1 : 0].path);
	return rc;
}

int rp_trace_load(struct rp_trace *t, const char *nodes_path, const char *pods_path,
		  rp_note_fn note, void *ctx, struct err *err)
{
	struct rp_text nodes = {0}, pods = {0};
	int rc = rp_trace_open(t, err);

	if (rc == 0)
		rc = read_text(nodes_path, &nodes, err);
	if (rc == 0 && pods_path != NULL && strcmp(nodes_path, pods_path) != 0)
		rc = read_text(pods_path, &pods, err);
	if (rc == 0)
		rc = load_texts(t, &nodes, &pods, note, ctx, err);
	text_fini(&nodes);
	text_fini(&pods);
	return rc;
}

/* What is left are the pods, and the pools of names. */
static int drop_nodes(struct rp_trace *t, struct err *err)
{
	strpool_free(t->node_names);
	t->node_names = strpool_new();
	t->node_count = 0;
	t->gpu_milli = 0;
	for (size_t i = 0; i < 2; i++)
		text_fini(&t->json[i]);
	return t->node_names != NULL ? 0 : out_of_memory(err);
}

int rp_trace_load_pods(struct rp_trace *t, const char *path, int64_t unit_mib, rp_note_fn note,
		       void *ctx, struct err *err)
{
	struct rp_text text = {0};
	int rc = rp_trace_open(t, err);

	if (rc == 0)
		rc = read_text(path, &text, err);
	if (rc == 0 && looks_like_json(text.data, text.len)) {
		t->json[0] = text;
		text = (struct rp_text){0};
		rc = rp_kubectl_pods(t, unit_mib, note, ctx, err);
		if (rc == 0 && t->pod_count == 0)
			rc = err_set(err, ERR_INVALID, "%s: no pending pods", path);
		if (rc == 0)
			rc = drop_nodes(t, err);
	} else if (rc == 0) {
		rc = load_csv_pods(t, &text, err);
	}
	text_fini(&text);
	return rc;
}

int rp_trace_load_cluster(struct rp_trace *t, const char *path, rp_note_fn note, void *ctx,
			  struct err *err)
{
	struct rp_text text = {0};
	int rc = rp_trace_open(t, err);

	if (rc == 0)
		rc = read_text(path, &text, err);
	if (rc == 0 && !looks_like_json(text.data, text.len))
		rc = err_set(err, ERR_INVALID, "%s: not a cluster in JSON", path);
	if (rc == 0) {
		t->json[0] = text;
		return rp_kubectl_load(t, true, note, ctx, err);
	}
	text_fini(&text);
	return rc;
}
