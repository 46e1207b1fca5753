#include "enforcer/usage.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "base/file.h"
#include "base/hash.h"
#include "kube/object.h"

#define FILE_MAX ((size_t)4 << 20)
#define WHOLE_MAX INT64_C(9007199254740992) /* a double holds all integers up to it */

struct row {
	UT_hash_handle hh;        /* by key */
	char *key;                /* "ns\nkind\nowner\ncontainer" */
	int64_t peak_mib, peak_s; /* peak_mib -1: not known */
	int64_t request_mib, limit_mib;
	int64_t first_s, last_s, samples;
	int64_t sm_percent; /* -1 */
};

struct en_usage {
	pthread_mutex_t lock;
	struct row *rows;
	bool changed; /* since it was saved */
};

static void row_free(struct row *r)
{
	free(r->key);
	free(r);
}

static void rows_free(struct row *rows)
{
	struct row *r, *next;

	HASH_ITER(hh, rows, r, next) {
		/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): uthash is right */
		HASH_DEL(rows, r);
		row_free(r);
	}
}

struct en_usage *en_usage_new(void)
{
	struct en_usage *u = calloc(1, sizeof(*u));

	if (u != NULL)
		pthread_mutex_init(&u->lock, NULL);
	return u;
}

void en_usage_free(struct en_usage *u)
{
	if (u == NULL)
		return;
	rows_free(u->rows);
	pthread_mutex_destroy(&u->lock);
	free(u);
}

/* ---- rows; under the lock ---- */

static void make_room(struct row **rows)
{
	struct row *oldest = NULL;

	if (HASH_COUNT(*rows) < EN_USAGE_ROWS_MAX)
		return;
	for (struct row *r = *rows; r != NULL; r = r->hh.next) {
		if (oldest == NULL || r->last_s < oldest->last_s)
			oldest = r;
	}
	HASH_DEL(*rows, oldest);
	row_free(oldest);
}

/* The row of that key, made where there is none. Takes the key. NULL: no memory. */
static struct row *row_get(struct row **rows, char *take_key)
{
	struct row *r = NULL;

	if (take_key == NULL)
		return NULL;
	HASH_FIND_STR(*rows, take_key, r);
	if (r != NULL) {
		free(take_key);
		return r;
	}
	make_room(rows);
	r = calloc(1, sizeof(*r));
	if (r == NULL) {
		free(take_key);
		return NULL;
	}
	r->key = take_key;
	r->peak_mib = r->sm_percent = -1;
	HASH_ADD_KEYPTR(hh, *rows, r->key, strlen(r->key), r);
	if (HASH_ADDED(r, hh))
		return r;
	row_free(r);
	return NULL;
}

static char *key_make(const char *ns, const char *kind, const char *owner, const char *container)
{
	struct buf b = BUF_INIT;

	buf_printf(&b, "%s\n%s\n%s\n%s", ns, kind, owner, container);
	return buf_take(&b);
}

int en_usage_put(struct en_usage *u, const struct en_usage_sample *s, struct err *err)
{
	char *key = key_make(s->ns, s->kind, s->owner, s->container);
	struct row *r;

	pthread_mutex_lock(&u->lock);
	r = row_get(&u->rows, key);
	if (r != NULL) {
		if (s->used_mib > r->peak_mib) {
			r->peak_mib = s->used_mib;
			r->peak_s = s->wall_s;
		}
		if (s->sm_percent > r->sm_percent)
			r->sm_percent = s->sm_percent;
		if (r->samples == 0)
			r->first_s = s->wall_s;
		r->request_mib = s->request_mib;
		r->limit_mib = s->limit_mib;
		r->last_s = s->wall_s;
		r->samples++;
		u->changed = true;
	}
	pthread_mutex_unlock(&u->lock);
	return r != NULL ? 0 : err_set(err, ERR_NOMEM, "usage: no memory");
}

size_t en_usage_count(struct en_usage *u)
{
	size_t n;

	pthread_mutex_lock(&u->lock);
	n = HASH_COUNT(u->rows);
	pthread_mutex_unlock(&u->lock);
	return n;
}

/* ---- out ---- */

static bool put_number(cJSON *o, const char *name, int64_t v)
{
	return v < 0 ? cJSON_AddNullToObject(o, name) != NULL
		     : cJSON_AddNumberToObject(o, name, (double)v) != NULL;
}

/* A part of the key, up to the next line; *at moves behind it. */
static bool put_part(cJSON *o, const char *name, const char **at)
{
	size_t len = strcspn(*at, "\n");
	char *part = strndup(*at, len);
	bool ok = part != NULL && cJSON_AddStringToObject(o, name, part) != NULL;

	free(part);
	*at += len + ((*at)[len] == '\n');
	return ok;
}

static bool put_row(cJSON *list, const struct row *r)
{
	cJSON *o = cJSON_CreateObject();
	const char *at = r->key;

	if (o == NULL || !cJSON_AddItemToArray(list, o)) {
		cJSON_Delete(o);
		return false;
	}
	return put_part(o, "namespace", &at) && put_part(o, "kind", &at) &&
	       put_part(o, "workload", &at) && put_part(o, "container", &at) &&
	       put_number(o, "peak_memory_mib", r->peak_mib) &&
	       put_number(o, "peak_memory_time", r->peak_mib < 0 ? -1 : r->peak_s) &&
	       put_number(o, "peak_sm_percent", r->sm_percent) &&
	       put_number(o, "request_mib", r->request_mib) &&
	       put_number(o, "limit_mib", r->limit_mib) && put_number(o, "samples", r->samples) &&
	       put_number(o, "first", r->first_s) && put_number(o, "last", r->last_s);
}

static int by_key(const struct row *a, const struct row *b)
{
	return strcmp(a->key, b->key);
}

/* Under the lock. */
static int print(struct en_usage *u, struct buf *out, struct err *err)
{
	cJSON *root = cJSON_CreateObject(), *list = NULL;
	char *text = NULL;
	bool ok = root != NULL && cJSON_AddNumberToObject(root, "version", 1) != NULL;

	if (ok)
		list = cJSON_AddArrayToObject(root, "workloads");
	ok = list != NULL;
	HASH_SORT(u->rows, by_key);
	for (const struct row *r = u->rows; ok && r != NULL; r = r->hh.next)
		ok = put_row(list, r);
	if (ok)
		text = cJSON_PrintUnformatted(root);
	cJSON_Delete(root);
	if (text != NULL) {
		buf_puts(out, text);
		buf_putc(out, '\n');
	}
	cJSON_free(text);
	return text != NULL && buf_ok(out) ? 0 : err_set(err, ERR_NOMEM, "usage: no memory");
}

int en_usage_json(struct en_usage *u, struct buf *out, struct err *err)
{
	int r;

	pthread_mutex_lock(&u->lock);
	r = print(u, out, err);
	pthread_mutex_unlock(&u->lock);
	return r;
}

/* ---- in ---- */

static int get_text(const cJSON *o, size_t at, const char *name, const char **ret, struct err *err)
{
	const cJSON *v = ku_json_get(o, name);

	if (!cJSON_IsString(v) || v->valuestring[0] == '\0' || strchr(v->valuestring, '\n') != NULL)
		return err_set(err, ERR_INVALID, "workloads[%zu].%s is not a name", at, name);
	*ret = v->valuestring;
	return 0;
}

static int get_number(const cJSON *o, size_t at, const char *name, int64_t *ret, struct err *err)
{
	const cJSON *v = ku_json_get(o, name);

	if (cJSON_IsNull(v)) {
		*ret = -1;
		return 0;
	}
	if (!cJSON_IsNumber(v) || !(v->valuedouble >= 0) || v->valuedouble > (double)WHOLE_MAX ||
	    (double)(int64_t)v->valuedouble != v->valuedouble)
		return err_set(err, ERR_INVALID, "workloads[%zu].%s is not a whole number", at,
			       name);
	*ret = (int64_t)v->valuedouble;
	return 0;
}

static int take_row(struct row **rows, const cJSON *o, size_t at, struct err *err)
{
	const char *ns = NULL, *kind = NULL, *owner = NULL, *container = NULL;
	struct row v = {.key = NULL}, *r;
	const struct {
		const char *name;
		int64_t *to;
	} numbers[] = {{"peak_memory_mib", &v.peak_mib},
		       {"peak_memory_time", &v.peak_s},
		       {"peak_sm_percent", &v.sm_percent},
		       {"request_mib", &v.request_mib},
		       {"limit_mib", &v.limit_mib},
		       {"samples", &v.samples},
		       {"first", &v.first_s},
		       {"last", &v.last_s}};
	int rc = get_text(o, at, "namespace", &ns, err);

	if (rc == 0)
		rc = get_text(o, at, "kind", &kind, err);
	if (rc == 0)
		rc = get_text(o, at, "workload", &owner, err);
	if (rc == 0)
		rc = get_text(o, at, "container", &container, err);
	for (size_t i = 0; rc == 0 && i < sizeof(numbers) / sizeof(numbers[0]); i++)
		rc = get_number(o, at, numbers[i].name, numbers[i].to, err);
	if (rc != 0)
		return rc;
	r = row_get(rows, key_make(ns, kind, owner, container));
	if (r == NULL)
		return err_set(err, ERR_NOMEM, "usage: no memory");
	if (v.peak_mib > r->peak_mib) {
		r->peak_mib = v.peak_mib;
		r->peak_s = v.peak_s;
	}
	r->sm_percent = v.sm_percent > r->sm_percent ? v.sm_percent : r->sm_percent;
	if (v.last_s > r->last_s) {
		r->last_s = v.last_s;
		r->request_mib = v.request_mib;
		r->limit_mib = v.limit_mib;
	}
	if (r->samples == 0 || v.first_s < r->first_s)
		r->first_s = v.first_s;
	r->samples += v.samples;
	return 0;
}

/* Moves rows over; what is there already keeps the higher figures. Under the lock. */
static int merge(struct en_usage *u, struct row **fresh, struct err *err)
{
	struct row *r, *next, *old;

	HASH_ITER(hh, *fresh, r, next) {
		/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): uthash is right */
		HASH_DEL(*fresh, r);
		HASH_FIND_STR(u->rows, r->key, old);
		if (old != NULL) {
			if (r->peak_mib > old->peak_mib) {
				old->peak_mib = r->peak_mib;
				old->peak_s = r->peak_s;
			}
			if (r->sm_percent > old->sm_percent)
				old->sm_percent = r->sm_percent;
			if (r->first_s < old->first_s)
				old->first_s = r->first_s;
			old->samples += r->samples;
			row_free(r);
			continue;
		}
		make_room(&u->rows);
		/* NOLINTBEGIN(clang-analyzer-unix.Malloc): it loses track of uthash's lists */
		HASH_ADD_KEYPTR(hh, u->rows, r->key, strlen(r->key), r);
		/* NOLINTEND(clang-analyzer-unix.Malloc) */
		if (!HASH_ADDED(r, hh)) {
			row_free(r);
			return err_set(err, ERR_NOMEM, "usage: no memory");
		}
	}
	return 0;
}

int en_usage_take(struct en_usage *u, const char *text, size_t len, struct err *err)
{
	cJSON *root = NULL;
	const cJSON *version, *list, *o;
	struct row *fresh = NULL;
	size_t at = 0;
	int rc = ku_json_parse(text, len, &root, err);

	if (rc != 0)
		return rc;
	version = ku_json_get(root, "version");
	list = ku_json_get(root, "workloads");
	if (!cJSON_IsNumber(version) || version->valuedouble != 1 || !cJSON_IsArray(list))
		rc = err_set(err, ERR_INVALID, "not a list of workloads in version 1");
	cJSON_ArrayForEach(o, list)
	{
		if (rc == 0)
			rc = take_row(&fresh, o, at++, err);
	}
	cJSON_Delete(root);
	if (rc == 0) {
		pthread_mutex_lock(&u->lock);
		rc = merge(u, &fresh, err);
		pthread_mutex_unlock(&u->lock);
	}
	rows_free(fresh);
	return rc;
}

int en_usage_load(struct en_usage *u, const char *path, struct err *err)
{
	char *text = NULL;
	size_t len = 0;
	int rc;

	if (access(path, F_OK) != 0 && errno == ENOENT)
		return 0;
	rc = file_read(path, FILE_MAX, &text, &len, err);
	if (rc != 0)
		return rc;
	rc = en_usage_take(u, text, len, err);
	free(text);
	return rc != 0 ? err_prefix(err, rc, "%s", path) : 0;
}

int en_usage_save(struct en_usage *u, const char *path, struct err *err)
{
	struct buf b = BUF_INIT;
	bool changed;
	int rc = 0;

	pthread_mutex_lock(&u->lock);
	changed = u->changed;
	if (changed)
		rc = print(u, &b, err);
	if (rc == 0)
		u->changed = false;
	pthread_mutex_unlock(&u->lock);
	if (changed && rc == 0)
		rc = file_replace(path, b.data, b.len, err);
	buf_fini(&b);
	if (rc != 0) {
		pthread_mutex_lock(&u->lock);
		u->changed = true;
		pthread_mutex_unlock(&u->lock);
	}
	return rc;
}
