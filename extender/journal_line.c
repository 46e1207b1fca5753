/* Lines of the journal: to text and back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>
#include <zlib.h>

#include "extender/journal.h"
#include "extender/json.h"
#include "kube/object.h"

#define VERSION_AT (sizeof("{\"v\":") - 1)

/* ---- check sums ---- */

void ex_journal_seal(struct buf *text, const char *record, size_t len, uint32_t *chain)
{
	size_t from = text->len;

	buf_put(text, record, len);
	if (!buf_ok(text))
		return;
	if (len > VERSION_AT && text->data[from + VERSION_AT] == '1')
		text->data[from + VERSION_AT] = '2'; /* an old line goes into a new file */
	*chain = (uint32_t)crc32_z(*chain, (const Bytef *)text->data + from, len);
	buf_printf(text, ",\"crc\":\"%08x\"}\n", *chain);
}

bool ex_journal_starts(const char *text, size_t len)
{
	for (size_t i = 0; i < len && i < EX_JOURNAL_START_LEN; i++) {
		if (text[i] != EX_JOURNAL_LINE_START[i] && !(i == VERSION_AT && text[i] == '1'))
			return false;
	}
	return true;
}

int ex_journal_line_check(const char *line, size_t len, uint32_t *chain, struct err *err)
{
	char tail[EX_JOURNAL_TAIL_LEN + 1];
	uint32_t crc;
	bool alone;

	if (len <= EX_JOURNAL_TAIL_LEN)
		return err_set(err, ERR_INVALID, "too short for a record");
	alone = len > VERSION_AT && line[VERSION_AT] == '1';
	crc = (uint32_t)crc32_z(alone ? 0 : *chain, (const Bytef *)line, len - EX_JOURNAL_TAIL_LEN);
	snprintf(tail, sizeof(tail), ",\"crc\":\"%08x\"}", crc);
	if (memcmp(tail, line + len - EX_JOURNAL_TAIL_LEN, EX_JOURNAL_TAIL_LEN) != 0)
		return err_set(err, ERR_INVALID,
			       "the check sum is wrong: %s; what to do: extender/README.md, \"When "
			       "the journal is refused\"",
			       alone ? "the line was changed"
				     : "the line was changed, or one before it is changed or gone");
	*chain = crc;
	return 0;
}

/* ---- requests ---- */

/* The integers of a request's item. */
#define ITEM(name)                                                                                 \
	{                                                                                          \
#name, offsetof(struct st_item, name), sizeof(((struct st_item *)0)->name)         \
	}
static const struct {
	const char *name;
	size_t offset, size;
} item_fields[] = {
	ITEM(kind),         ITEM(mode),         ITEM(mode_preferred), ITEM(count),
	ITEM(request_mib),  ITEM(request_nano), ITEM(limit_mib),      ITEM(limit_nano),
	ITEM(compute_nano), ITEM(apart),
};
#define ITEM_FIELDS (sizeof(item_fields) / sizeof(item_fields[0]))

static int64_t field_get(const struct st_item *it, size_t f)
{
	const char *at = (const char *)it + item_fields[f].offset;
	int32_t v32;

	if (item_fields[f].size == 1)
		return *(const uint8_t *)at;
	memcpy(&v32, at, sizeof(v32));
	return v32;
}

static void field_set(struct st_item *it, size_t f, int64_t v)
{
	char *at = (char *)it + item_fields[f].offset;
	int32_t v32 = (int32_t)v;

	if (item_fields[f].size == 1)
		*(uint8_t *)at =
			item_fields[f].offset == offsetof(struct st_item, mode_preferred) ||
					item_fields[f].offset == offsetof(struct st_item, apart)
				? v != 0
				: (uint8_t)v;
	else
		memcpy(at, &v32, sizeof(v32));
}

static void put_request(struct ex_json *j, const struct st_request *req)
{
	ex_json_key(j, "request");
	ex_json_begin(j, '{');
	ex_json_key_string(j, "product", req->product);
	ex_json_key_i64(j, "workload", req->workload);
	ex_json_key(j, "items");
	ex_json_begin(j, '[');
	for (unsigned i = 0; i < req->item_count; i++) {
		ex_json_begin(j, '{');
		for (size_t f = 0; f < ITEM_FIELDS; f++)
			ex_json_key_i64(j, item_fields[f].name, field_get(&req->items[i], f));
		ex_json_key_string(j, "profile", req->items[i].profile);
		ex_json_end(j, '}');
	}
	ex_json_end(j, ']');
	ex_json_end(j, '}');
}

/* ---- writing ---- */

static void start(struct buf *line, struct ex_json *j, const char *event, const char *uid)
{
	*j = (struct ex_json){.b = line};
	ex_json_begin(j, '{');
	ex_json_key_i64(j, "v", 2);
	ex_json_key_string(j, "event", event);
	ex_json_key_string(j, "uid", uid);
}

void ex_journal_put_bind(struct buf *line, const struct st_pod_ident *pod, const char *node,
			 const struct st_decision *d, const struct st_annotations *annotations,
			 const struct st_request *learned)
{
	struct ex_json j;

	start(line, &j, "bind", pod->uid);
	ex_json_key_string(&j, "ns", pod->ns);
	ex_json_key_string(&j, "name", pod->name);
	ex_json_key_string(&j, "node", node);
	ex_json_key_i64(&j, "priority", pod->priority);
	ex_json_key_i64(&j, "cpu_milli", pod->cpu_milli);
	ex_json_key_i64(&j, "mem_mib", pod->mem_mib);
	ex_json_key_bool(&j, "memory_bound", pod->memory_bound);
	ex_json_key(&j, "containers");
	ex_json_begin(&j, '[');
	for (unsigned i = 0; i < d->grant_count; i++)
		ex_json_string(&j, d->grants[i].container);
	ex_json_end(&j, ']');
	ex_json_key(&j, "annotations");
	ex_json_begin(&j, '{');
	for (size_t i = 0; i < annotations->count; i++)
		ex_json_key_string(&j, annotations->kv[i].key, annotations->kv[i].value);
	ex_json_end(&j, '}');
	if (learned != NULL)
		put_request(&j, learned);
}

void ex_journal_put_release(struct buf *line, const char *uid)
{
	struct ex_json j;

	start(line, &j, "release", uid);
}

/* ---- reading ---- */

static const char *text_of(const cJSON *obj, const char *name)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(obj, name);

	return cJSON_IsString(v) ? v->valuestring : NULL;
}

static int64_t number_of(const cJSON *obj, const char *name)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(obj, name);

	/* A line with a right check sum is ours: totals are below 2^53 or saturated. */
	if (!cJSON_IsNumber(v))
		return 0;
	if (v->valuedouble >= 9.2e18)
		return INT64_MAX;
	return v->valuedouble <= -9.2e18 ? INT64_MIN : (int64_t)v->valuedouble;
}

static int read_annotations(const cJSON *obj, struct ku_arena *a, struct st_pod_spec *pod,
			    struct err *err)
{
	const cJSON *list = cJSON_GetObjectItemCaseSensitive(obj, "annotations"), *v;
	int count = cJSON_GetArraySize(list);

	pod->annotations = ku_arena_alloc(a, ((size_t)count + 1) * sizeof(pod->annotations[0]));
	if (pod->annotations == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	cJSON_ArrayForEach(v, list)
	{
		if (!cJSON_IsString(v) || v->string == NULL)
			return err_set(err, ERR_INVALID, "an annotation is not a string");
		pod->annotations[pod->annotation_count++] =
			(struct st_kv){v->string, v->valuestring};
	}
	return 0;
}

static int read_containers(const cJSON *obj, struct ku_arena *a, struct st_pod_spec *pod,
			   struct err *err)
{
	const cJSON *list = cJSON_GetObjectItemCaseSensitive(obj, "containers"), *v;
	int count = cJSON_GetArraySize(list);

	pod->containers = ku_arena_alloc(a, ((size_t)count + 1) * sizeof(pod->containers[0]));
	if (pod->containers == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	cJSON_ArrayForEach(v, list)
	{
		if (!cJSON_IsString(v))
			return err_set(err, ERR_INVALID, "a container is not a string");
		pod->containers[pod->container_count++].name = v->valuestring;
	}
	return 0;
}

static bool copy_text(const cJSON *obj, const char *name, char *to, size_t cap)
{
	const char *text = text_of(obj, name);

	if (text == NULL || strlen(text) >= cap)
		return false;
	memcpy(to, text, strlen(text) + 1);
	return true;
}

static bool read_item(const cJSON *obj, struct st_item *it)
{
	for (size_t f = 0; f < ITEM_FIELDS; f++) {
		int64_t v = number_of(obj, item_fields[f].name);

		if (v < 0 || v > (item_fields[f].size == 1 ? UINT8_MAX : INT32_MAX))
			return false;
		field_set(it, f, v);
	}
	return it->kind <= ST_KIND_MIG && it->mode < ST_MODE_COUNT &&
	       copy_text(obj, "profile", it->profile, sizeof(it->profile));
}

static int read_request(const cJSON *obj, const struct st_pod_ident *ident, struct st_request *ret,
			struct err *err)
{
	const cJSON *items = cJSON_GetObjectItemCaseSensitive(obj, "items"), *v;
	int64_t workload = number_of(obj, "workload");
	bool right = workload >= 0 && workload <= ST_WORKLOAD_COMPUTE_BOUND;

	*ret = (struct st_request){.cpu_milli = ident->cpu_milli, .mem_mib = ident->mem_mib};
	right = right && copy_text(obj, "product", ret->product, sizeof(ret->product));
	ret->workload = (enum st_workload_profile)(right ? workload : 0);
	cJSON_ArrayForEach(v, items)
	{
		right = right && ret->item_count < ST_ITEMS_MAX &&
			read_item(v, &ret->items[ret->item_count]);
		if (right)
			ret->item_count++;
	}
	return right ? 0 : err_set(err, ERR_INVALID, "a request that cannot be");
}

static int read_bind(const cJSON *obj, struct ku_arena *a, const struct ex_journal_reader *r,
		     struct err *err)
{
	struct st_pod_spec pod = {
		.uid = text_of(obj, "uid"),
		.ns = text_of(obj, "ns"),
		.name = text_of(obj, "name"),
		.node = text_of(obj, "node"),
		.nominated_node = "",
		.scheduler = "",
		.priority = (int32_t)number_of(obj, "priority"),
		.phase = ST_PHASE_RUNNING,
	};
	struct st_pod_ident ident = {
		.uid = pod.uid,
		.ns = pod.ns,
		.name = pod.name,
		.priority = pod.priority,
		.cpu_milli = number_of(obj, "cpu_milli"),
		.mem_mib = number_of(obj, "mem_mib"),
		.memory_bound = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(obj, "memory_bound")),
	};
	const cJSON *request = cJSON_GetObjectItemCaseSensitive(obj, "request");
	struct st_request learned;
	int rc;

	if (pod.ns == NULL || pod.name == NULL || pod.node == NULL)
		return err_set(err, ERR_INVALID, "a bind without ns, name or node");
	rc = read_annotations(obj, a, &pod, err);
	if (rc == 0)
		rc = read_containers(obj, a, &pod, err);
	if (rc == 0 && request != NULL)
		rc = read_request(request, &ident, &learned, err);
	if (rc < 0 || r->bind == NULL)
		return rc;
	return r->bind(r->ctx, &pod, &ident, request != NULL ? &learned : NULL, err);
}

static int read_event(const cJSON *obj, struct ku_arena *a, const struct ex_journal_reader *r,
		      struct err *err)
{
	const char *event = text_of(obj, "event"), *uid = text_of(obj, "uid");
	int64_t v = number_of(obj, "v");

	if (event == NULL || uid == NULL || (v != 1 && v != 2))
		return err_set(err, ERR_INVALID,
			       "not a record of version 1 or 2 with event and uid");
	if (strcmp(event, "bind") == 0)
		return read_bind(obj, a, r, err);
	if (strcmp(event, "release") == 0)
		return r->release != NULL ? r->release(r->ctx, uid, err) : 0;
	return err_set(err, ERR_INVALID, "unknown event \"%.40s\"", event);
}

/* One line without its newline. */
static int read_line(const char *line, size_t len, uint32_t *chain, struct ku_arena *a,
		     const struct ex_journal_reader *r, struct err *err)
{
	cJSON *obj = NULL;
	int rc;

	rc = ex_journal_line_check(line, len, chain, err);
	if (rc == 0)
		rc = ku_json_parse(line, len, &obj, err);
	if (rc == 0)
		rc = read_event(obj, a, r, err);
	cJSON_Delete(obj);
	ku_arena_reset(a);
	return rc;
}

/* Of a file that never was a journal, a wrong check sum says nothing. */
static int check_start(const char *text, size_t len, struct err *err)
{
	const char *newline = len > 0 ? memchr(text, '\n', len) : NULL;
	uint32_t chain = 0;

	if (newline == NULL || ex_journal_starts(text, len) ||
	    ex_journal_line_check(text, (size_t)(newline - text), &chain, NULL) == 0)
		return 0;
	return err_set(err, ERR_INVALID,
		       "not a journal of tessera-extender: its first line is no record; nothing "
		       "was changed");
}

int ex_journal_read(const char *text, size_t len, const struct ex_journal_reader *r,
		    struct ex_journal_end *ret, struct err *err)
{
	struct ku_arena *a = ku_arena_new();
	const char *p = text, *end = text + len, *newline;
	uint32_t chain = 0;
	size_t number = 1;
	int rc;

	if (a == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	rc = check_start(text, len, err);
	while (rc == 0 && p < end && (newline = memchr(p, '\n', (size_t)(end - p))) != NULL) {
		rc = read_line(p, (size_t)(newline - p), &chain, a, r, err);
		if (rc < 0) {
			err_prefix(err, rc, "line %zu", number);
			break;
		}
		p = newline + 1;
		number++;
	}
	ku_arena_free(a);
	if (rc == 0)
		*ret = (struct ex_journal_end){.good = (size_t)(p - text), .chain = chain};
	return rc;
}
