#include "replay/sizing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arith.h"
#include "kube/object.h"

#define MIB_MAX INT64_C(1000000000)
#define SAMPLES_MAX INT64_C(9000000000000000)

void rp_sizing_fini(struct rp_sizing *s)
{
	for (size_t i = 0; i < s->count; i++) {
		free(s->rows[i].ns);
		free(s->rows[i].kind);
		free(s->rows[i].workload);
		free(s->rows[i].container);
	}
	free(s->rows);
	*s = (struct rp_sizing){0};
}

static int get_text(const cJSON *o, size_t row, const char *name, const char **ret, struct err *err)
{
	const cJSON *x = ku_json_get(o, name);

	if (!cJSON_IsString(x) || x->valuestring[0] == '\0' || strlen(x->valuestring) > 253)
		return err_set(err, ERR_INVALID, "workloads[%zu].%s is not a name", row, name);
	*ret = x->valuestring;
	return 0;
}

/* A whole number; null and absent are unknown. */
static int get_number(const cJSON *o, size_t row, const char *name, int64_t max, int64_t *ret,
		      struct err *err)
{
	const cJSON *x = ku_json_get(o, name);

	*ret = RP_USAGE_UNKNOWN;
	if (x == NULL || cJSON_IsNull(x))
		return 0;
	if (!cJSON_IsNumber(x) || x->valuedouble < 0 || x->valuedouble > (double)max ||
	    x->valuedouble != floor(x->valuedouble))
		return err_set(err, ERR_INVALID,
			       "workloads[%zu].%s is not a whole number within 0 and %lld", row,
			       name, (long long)max);
	*ret = (int64_t)x->valuedouble;
	return 0;
}

static struct rp_usage *find(const struct rp_sizing *s, const struct rp_usage *k)
{
	for (size_t i = 0; i < s->count; i++) {
		struct rp_usage *u = &s->rows[i];

		if (strcmp(u->ns, k->ns) == 0 && strcmp(u->kind, k->kind) == 0 &&
		    strcmp(u->workload, k->workload) == 0 &&
		    strcmp(u->container, k->container) == 0)
			return u;
	}
	return NULL;
}

static int add(struct rp_sizing *s, const struct rp_usage *u, struct err *err)
{
	struct rp_usage own = *u;

	if (s->count == s->cap) {
		size_t cap = s->cap > 0 ? 2 * s->cap : 64;
		struct rp_usage *more = reallocarray(s->rows, cap, sizeof(*more));

		if (more == NULL)
			return err_set(err, ERR_NOMEM, "out of memory");
		s->rows = more;
		s->cap = cap;
	}
	own.ns = strdup(u->ns);
	own.kind = strdup(u->kind);
	own.workload = strdup(u->workload);
	own.container = strdup(u->container);
	s->rows[s->count++] = own; /* freed as a whole */
	return own.ns != NULL && own.kind != NULL && own.workload != NULL && own.container != NULL
		       ? 0
		       : err_set(err, ERR_NOMEM, "out of memory");
}

static int read_row(struct rp_sizing *s, const cJSON *o, size_t row, struct err *err)
{
	const char *ns = "", *kind = "", *workload = "", *container = "";
	struct rp_usage v, *u;
	int rc;

	if (!cJSON_IsObject(o))
		return err_set(err, ERR_INVALID, "workloads[%zu] is not an object", row);
	if ((rc = get_text(o, row, "namespace", &ns, err)) < 0 ||
	    (rc = get_text(o, row, "kind", &kind, err)) < 0 ||
	    (rc = get_text(o, row, "workload", &workload, err)) < 0 ||
	    (rc = get_text(o, row, "container", &container, err)) < 0 ||
	    (rc = get_number(o, row, "peak_memory_mib", MIB_MAX, &v.peak_mib, err)) < 0 ||
	    (rc = get_number(o, row, "peak_sm_percent", 100, &v.sm_percent, err)) < 0 ||
	    (rc = get_number(o, row, "request_mib", MIB_MAX, &v.request_mib, err)) < 0 ||
	    (rc = get_number(o, row, "limit_mib", MIB_MAX, &v.limit_mib, err)) < 0 ||
	    (rc = get_number(o, row, "samples", SAMPLES_MAX, &v.samples, err)) < 0)
		return rc;
	/* Names are only read; what is kept is a copy.
	 * NOLINTBEGIN(performance-no-int-to-ptr) */
	v.ns = (char *)(uintptr_t)ns;
	v.kind = (char *)(uintptr_t)kind;
	v.workload = (char *)(uintptr_t)workload;
	v.container = (char *)(uintptr_t)container;
	/* NOLINTEND(performance-no-int-to-ptr) */
	v.samples = arith_max(v.samples, 0);
	u = find(s, &v);
	if (u == NULL)
		return add(s, &v, err);
	u->peak_mib = arith_max(u->peak_mib, v.peak_mib);
	u->sm_percent = arith_max(u->sm_percent, v.sm_percent);
	u->request_mib = arith_max(u->request_mib, v.request_mib);
	u->limit_mib = arith_max(u->limit_mib, v.limit_mib);
	u->samples = arith_min(u->samples + v.samples, SAMPLES_MAX);
	return 0;
}

int rp_sizing_read(struct rp_sizing *s, const char *text, size_t len, struct err *err)
{
	cJSON *root = NULL;
	const cJSON *version, *list, *o;
	size_t row = 0;
	int rc = ku_json_parse(text, len, &root, err);

	if (rc < 0)
		return rc;
	version = ku_json_get(root, "version");
	list = ku_json_get(root, "workloads");
	if (!cJSON_IsObject(root) || !cJSON_IsNumber(version) || version->valuedouble != 1 ||
	    !cJSON_IsArray(list))
		rc = err_set(err, ERR_INVALID, "not a list of workloads in version 1");
	else
		cJSON_ArrayForEach(o, list)
		{
			rc = read_row(s, o, row++, err);
			if (rc < 0)
				break;
		}
	cJSON_Delete(root);
	return rc;
}

struct rp_size rp_sizing_of(const struct rp_usage *u, int64_t margin_nano, int64_t min_samples)
{
	struct rp_size z = {.u = u, .advised_mib = arith_max(u->request_mib, 0)};
	int64_t want;

	if (u->peak_mib < 0 || u->request_mib <= 0) {
		z.advice = RP_NOT_MEASURED;
		return z;
	}
	want = arith_max(u->peak_mib, 1);
	want += arith_mul_div_ceil(want, margin_nano, 1000000000);
	if (u->peak_mib > u->request_mib) {
		z.advice = RP_MORE; /* one sample is enough to say that */
	} else if (u->samples < min_samples) {
		z.advice = RP_TOO_FEW;
		return z;
	} else if (want >= u->request_mib) {
		return z;
	} else {
		z.advice = RP_LESS;
	}
	z.advised_mib = want;
	z.freed_mib = u->request_mib - want;
	return z;
}

const char *rp_advice_name(enum rp_advice a)
{
	static const char *const names[RP_ADVICES] = {"keep", "less", "more", "few samples",
						      "not measured"};

	return names[a];
}
