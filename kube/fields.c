/* Typed look-ups in JSON objects. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kube/object_internal.h"

static const char *type_name(const cJSON *v)
{
	return cJSON_IsString(v)   ? "a string"
	       : cJSON_IsNumber(v) ? "a number"
	       : cJSON_IsBool(v)   ? "true or false"
	       : cJSON_IsArray(v)  ? "an array"
	       : cJSON_IsObject(v) ? "an object"
				   : "null";
}

int ku_wrong_type(const cJSON *v, const char *path, const char *want, struct err *err)
{
	return err_set(err, ERR_INVALID, "%s: is %s, not %s", path, type_name(v), want);
}

int ku_nomem(struct err *err)
{
	return err_set(err, ERR_NOMEM, "no memory");
}

int ku_err_path(struct err *err, int code, const char *fmt, ...)
{
	char path[ERR_MSG_CAP];
	va_list ap;

	if (err == NULL)
		return code;
	va_start(ap, fmt);
	vsnprintf(path, sizeof(path), fmt, ap);
	va_end(ap);
	return err_set(err, code, "%s%s", path, err->msg);
}

/* The member, NULL when it is absent or null. */
static const cJSON *member(const cJSON *obj, const char *name)
{
	const cJSON *v = ku_json_get(obj, name);

	return cJSON_IsNull(v) ? NULL : v;
}

int ku_get_object(const cJSON *obj, const char *name, const char *path, const cJSON **ret,
		  struct err *err)
{
	const cJSON *v = member(obj, name);

	if (v != NULL && !cJSON_IsObject(v))
		return ku_wrong_type(v, path, "an object", err);
	*ret = v;
	return 0;
}

int ku_get_array(const cJSON *obj, const char *name, const char *path, const cJSON **ret,
		 struct err *err)
{
	const cJSON *v = member(obj, name);

	if (v != NULL && !cJSON_IsArray(v))
		return ku_wrong_type(v, path, "an array", err);
	*ret = v;
	return 0;
}

int ku_get_string(const cJSON *obj, const char *name, const char *path, const char **ret,
		  struct err *err)
{
	const cJSON *v = member(obj, name);

	if (v != NULL && !cJSON_IsString(v))
		return ku_wrong_type(v, path, "a string", err);
	*ret = v != NULL ? v->valuestring : "";
	return 0;
}

int ku_get_bool(const cJSON *obj, const char *name, const char *path, bool dflt, bool *ret,
		struct err *err)
{
	const cJSON *v = member(obj, name);

	if (v != NULL && !cJSON_IsBool(v))
		return ku_wrong_type(v, path, "true or false", err);
	*ret = v != NULL ? cJSON_IsTrue(v) : dflt;
	return 0;
}

int ku_get_int(const cJSON *obj, const char *name, const char *path, int64_t min, int64_t max,
	       int64_t dflt, int64_t *ret, struct err *err)
{
	const cJSON *v = member(obj, name);

	if (v != NULL && !cJSON_IsNumber(v))
		return ku_wrong_type(v, path, "a number", err);
	/* A double holds integers exactly up to 2^53; all bounds in use are far below. */
	if (v != NULL && (v->valuedouble < (double)min || v->valuedouble > (double)max))
		return err_set(err, ERR_RANGE, "%s: %.17g is not between %lld and %lld", path,
			       v->valuedouble, (long long)min, (long long)max);
	if (v != NULL && v->valuedouble != floor(v->valuedouble))
		return err_set(err, ERR_INVALID, "%s: %.17g is not an integer", path,
			       v->valuedouble);
	*ret = v != NULL ? (int64_t)v->valuedouble : dflt;
	return 0;
}

int ku_copy_string(const cJSON *obj, const char *name, const char *path, struct ku_arena *a,
		   const char **ret, struct err *err)
{
	const char *s = "";
	int r = ku_get_string(obj, name, path, &s, err);

	if (r != 0)
		return r;
	s = ku_arena_str(a, s);
	if (s == NULL)
		return ku_nomem(err);
	*ret = s;
	return 0;
}

int ku_quantity_text(const cJSON *v, const char *path, char buf[KU_NUMBER_CAP], const char **ret,
		     struct err *err)
{
	if (cJSON_IsString(v)) {
		*ret = v->valuestring;
		return 0;
	}
	if (!cJSON_IsNumber(v))
		return ku_wrong_type(v, path, "a quantity", err);
	if (fabs(v->valuedouble) > 9007199254740992.0)
		return err_set(err, ERR_RANGE, "%s: %.17g must be written as a string", path,
			       v->valuedouble);
	for (int digits = 15; digits <= 17; digits++) {
		snprintf(buf, KU_NUMBER_CAP, "%.*g", digits, v->valuedouble);
		if (strtod(buf, NULL) == v->valuedouble)
			break;
	}
	*ret = buf;
	return 0;
}

int ku_get_quantity(const cJSON *obj, const char *name, const char *path, enum quantity_unit unit,
		    int64_t *ret, bool *ret_given, struct err *err)
{
	const cJSON *v = member(obj, name);
	char buf[KU_NUMBER_CAP];
	const char *text = "";
	int64_t value = 0;
	int r = 0;

	if (v != NULL) {
		r = ku_quantity_text(v, path, buf, &text, err);
		if (r != 0)
			return r;
		r = quantity_parse(text, unit, &value, err);
		if (r != 0)
			return err_prefix(err, r, "%s", path);
	}
	*ret = value;
	if (ret_given != NULL)
		*ret_given = v != NULL;
	return 0;
}

struct map_entry {
	const char *key, *value;
	size_t index;
};

static int compare_entries(const void *va, const void *vb)
{
	const struct map_entry *a = va, *b = vb;
	int r = strcmp(a->key, b->key);

	return r != 0 ? r : (a->index > b->index) - (a->index < b->index);
}

/* One member as an entry; quantities may be numbers, whose text goes to the arena. */
static int read_entry(const cJSON *v, const char *path, bool quantities, struct ku_arena *a,
		      struct map_entry *e, struct err *err)
{
	char buf[KU_NUMBER_CAP];
	int r = 0;

	e->key = v->string;
	e->value = "";
	if (cJSON_IsString(v))
		e->value = v->valuestring;
	else if (quantities && cJSON_IsNumber(v))
		r = ku_quantity_text(v, v->string, buf, &e->value, err);
	else if (!cJSON_IsNull(v))
		r = ku_wrong_type(v, v->string, quantities ? "a quantity" : "a string", err);
	if (r != 0)
		return ku_err_path(err, r, "%s.", path);
	if (e->value == buf)
		e->value = ku_arena_str(a, buf);
	return e->value != NULL ? 0 : ku_nomem(err);
}

int ku_copy_map(const cJSON *obj, const char *path, bool quantities, struct ku_arena *a,
		struct st_kv **ret, size_t *ret_count, struct err *err)
{
	size_t count = 0, kept = 0;
	struct map_entry *entries;
	struct st_kv *kv;
	const cJSON *v;

	cJSON_ArrayForEach(v, obj) count++;
	entries = ku_arena_alloc(a, count * sizeof(*entries));
	kv = ku_arena_alloc(a, count * sizeof(*kv));
	if (entries == NULL || kv == NULL)
		return ku_nomem(err);
	count = 0;
	cJSON_ArrayForEach(v, obj)
	{
		int r = read_entry(v, path, quantities, a, &entries[count], err);

		if (r != 0)
			return r;
		entries[count].index = count;
		count++;
	}
	qsort(entries, count, sizeof(*entries), compare_entries);
	for (size_t i = 0; i < count; i++) {
		if (i + 1 < count && strcmp(entries[i].key, entries[i + 1].key) == 0)
			continue;
		kv[kept].key = ku_arena_str(a, entries[i].key);
		kv[kept].value = ku_arena_str(a, entries[i].value);
		if (kv[kept].key == NULL || kv[kept].value == NULL)
			return ku_nomem(err);
		kept++;
	}
	*ret = kv;
	*ret_count = kept;
	return 0;
}
