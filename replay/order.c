#include "replay/order.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/arith.h"
#include "base/rng.h"
#include "replay/csv.h"

/* Independent streams of one seed. */
#define STREAM_PODS UINT64_C(0)
#define STREAM_CLONES UINT64_C(0x636c6f6e65730000)
#define STREAM_RANKS UINT64_C(0x72616e6b73000000)

void rp_order_fini(struct rp_order *o)
{
	free(o->pods);
	free(o->ranks);
	*o = (struct rp_order){0};
}

static int out_of_memory(struct err *err)
{
	return err_set(err, ERR_NOMEM, "out of memory");
}

static int add_pod(const struct rp_trace *t, struct rp_order *o, uint32_t pod, struct err *err)
{
	if (o->pod_count == o->pod_cap) {
		size_t cap = o->pod_cap > 0 ? 2 * o->pod_cap : 1024;
		uint32_t *pods = reallocarray(o->pods, cap, sizeof(*pods));

		if (pods == NULL)
			return out_of_memory(err);
		o->pods = pods;
		o->pod_cap = cap;
	}
	o->pods[o->pod_count++] = pod;
	o->milli += t->shapes[t->pods[pod]].milli;
	return 0;
}

/* ---- order files: the lines are read as tables of one column ---- */

static int complain(const struct rp_csv *csv, size_t at, int code, const char *what,
		    struct rp_field f, struct err *err)
{
	char shown[RP_SHOWN_CAP];

	return err_set(err, code, "%s:%u:%zu: %s: \"%s\"", csv->path, csv->line, at + 1, what,
		       rp_csv_show(f, shown));
}

static int next_line(struct rp_csv *csv, const char *wanted, struct rp_field *ret, struct err *err)
{
	int rc = rp_csv_next(csv, err);

	if (rc < 0)
		return rc;
	if (rc == 0)
		return err_set(err, ERR_INVALID, "%s:%u:1: the file ends, %s expected", csv->path,
			       csv->line + 1, wanted);
	if (csv->field_count != 1)
		return complain(csv, csv->fields[0].len, ERR_INVALID, "a comma in an order file",
				csv->fields[0], err);
	*ret = csv->fields[0];
	return 0;
}

/* "<word> <number>" and, where word2 is given, " <word2> <number>". */
static int read_head(struct rp_csv *csv, const char *form, const char *word, int64_t *ret,
		     const char *word2, int64_t *ret2, struct err *err)
{
	struct rp_field line = {.s = ""}, part[4] = {{0}};
	size_t n = 0, want = word2 != NULL ? 4 : 2;
	const char *s, *end;
	int rc = next_line(csv, form, &line, err);

	if (rc < 0)
		return rc;
	for (s = line.s, end = line.s + line.len; n < 4; n++) {
		const char *blank = memchr(s, ' ', (size_t)(end - s));
		const char *stop = blank != NULL ? blank : end;

		part[n] = (struct rp_field){.s = s, .len = (size_t)(stop - s)};
		if (blank == NULL) {
			n++;
			break;
		}
		s = blank + 1;
	}
	if (n != want || part[n - 1].s + part[n - 1].len != end || part[0].len != strlen(word) ||
	    memcmp(part[0].s, word, part[0].len) != 0 || !rp_digits(part[1], ret) ||
	    (word2 != NULL &&
	     (part[2].len != strlen(word2) || memcmp(part[2].s, word2, part[2].len) != 0 ||
	      !rp_digits(part[3], ret2))))
		return err_set(err, ERR_INVALID, "%s:%u:1: not of the form \"%s\"", csv->path,
			       csv->line, form);
	return 0;
}

static int read_pods(const struct rp_trace *t, struct rp_csv *csv, struct rp_order *o,
		     struct err *err)
{
	int64_t count = 0, milli = 0;
	unsigned head_line;
	int rc = read_head(csv, "pods N req R", "pods", &count, "req", &milli, err);

	head_line = csv->line;
	for (int64_t i = 0; rc == 0 && i < count; i++) {
		struct rp_field name = {.s = ""};
		uint32_t id;

		rc = next_line(csv, "a pod name", &name, err);
		if (rc < 0)
			return rc;
		id = strpool_find(t->pod_names, name.s, name.len);
		if (id == STRPOOL_NONE)
			return complain(csv, 0, ERR_INVALID, "no such pod in the trace", name, err);
		rc = add_pod(t, o, id, err);
	}
	if (rc == 0 && o->milli != milli)
		return err_set(err, ERR_INVALID,
			       "%s:%u:1: \"req %" PRId64 "\", but the pods listed ask for %" PRId64,
			       csv->path, head_line, milli, o->milli);
	return rc;
}

static int read_rank(const struct rp_trace *t, struct rp_csv *csv, struct rp_order *o, bool *seen,
		     struct err *err)
{
	struct rp_field line = {.s = ""}, digits, name;
	const char *dash;
	int64_t rank;
	uint32_t id;
	int rc = next_line(csv, "RANK-name of a node", &line, err);

	if (rc < 0)
		return rc;
	dash = memchr(line.s, '-', line.len);
	digits = (struct rp_field){.s = line.s,
				   .len = dash != NULL ? (size_t)(dash - line.s) : line.len};
	if (dash == NULL || !rp_digits(digits, &rank))
		return complain(csv, 0, ERR_INVALID, "not of the form RANK-name", line, err);
	if (rank >= (int64_t)t->node_count)
		return complain(csv, 0, ERR_RANGE, "a rank that is not below the number of nodes",
				digits, err);
	name = (struct rp_field){.s = dash + 1, .len = line.len - digits.len - 1};
	id = strpool_find(t->node_names, name.s, name.len);
	if (id == STRPOOL_NONE)
		return complain(csv, digits.len + 1, ERR_INVALID, "no such node in the trace", name,
				err);
	if (o->ranks[id] != UINT32_MAX)
		return complain(csv, digits.len + 1, ERR_INVALID, "a node that occurs twice", name,
				err);
	if (seen[rank])
		return complain(csv, 0, ERR_INVALID, "a rank that occurs twice", digits, err);
	seen[rank] = true;
	o->ranks[id] = (uint32_t)rank;
	return 0;
}

static int read_ranks(const struct rp_trace *t, struct rp_csv *csv, struct rp_order *o,
		      struct err *err)
{
	int64_t count = 0;
	bool *seen;
	int rc = read_head(csv, "nodes M", "nodes", &count, NULL, NULL, err);

	if (rc < 0)
		return rc;
	if (count != (int64_t)t->node_count)
		return err_set(err, ERR_INVALID,
			       "%s:%u:1: \"nodes %" PRId64 "\", but the trace has %zu", csv->path,
			       csv->line, count, t->node_count);
	o->ranks = calloc(t->node_count + 1, sizeof(*o->ranks));
	seen = calloc(t->node_count + 1, sizeof(*seen));
	if (o->ranks == NULL || seen == NULL) {
		free(seen);
		return out_of_memory(err);
	}
	memset(o->ranks, 0xFF, t->node_count * sizeof(*o->ranks));
	for (int64_t i = 0; rc == 0 && i < count; i++)
		rc = read_rank(t, csv, o, seen, err);
	free(seen);
	return rc;
}

int rp_order_read(const struct rp_trace *t, const char *path, const char *text, size_t len,
		  struct rp_order *ret, struct err *err)
{
	struct rp_order o = {0};
	struct rp_csv csv;
	int rc;

	rp_csv_init(&csv, path, text, len);
	rc = read_pods(t, &csv, &o, err);
	if (rc == 0)
		rc = read_ranks(t, &csv, &o, err);
	if (rc == 0) {
		rc = rp_csv_next(&csv, err);
		if (rc == 1)
			rc = complain(&csv, 0, ERR_INVALID, "text after the last node",
				      csv.fields[0], err);
	}
	if (rc < 0) {
		rp_order_fini(&o);
		return rc;
	}
	*ret = o;
	return 0;
}

/* ---- orders from a seed ---- */

struct by_name {
	const char *name;
	uint32_t id;
};

static int compare_names(const void *a, const void *b)
{
	const struct by_name *x = a, *y = b;

	return strcmp(x->name, y->name);
}

/* Ids 0..count-1 sorted by name; NULL: no memory. */
static uint32_t *sorted_ids(const struct strpool *names, size_t count)
{
	struct by_name *list = malloc((count > 0 ? count : 1) * sizeof(*list));
	uint32_t *ids = malloc((count > 0 ? count : 1) * sizeof(*ids));
	bool sorted = true;

	if (list == NULL || ids == NULL) {
		free(list);
		free(ids);
		return NULL;
	}
	for (uint32_t i = 0; i < count; i++) {
		list[i] = (struct by_name){.name = strpool_str(names, i), .id = i};
		if (i > 0 && strcmp(list[i - 1].name, list[i].name) > 0)
			sorted = false;
	}
	if (!sorted)
		qsort(list, count, sizeof(*list), compare_names);
	for (size_t i = 0; i < count; i++)
		ids[i] = list[i].id;
	free(list);
	return ids;
}

static void shuffle(uint32_t *ids, size_t count, struct rng *rng)
{
	for (size_t i = count; i > 1; i--) {
		size_t k = (size_t)rng_below(rng, i);
		uint32_t id = ids[k];

		ids[k] = ids[i - 1];
		ids[i - 1] = id;
	}
}

static bool any_gpu(const struct rp_trace *t)
{
	for (size_t i = 0; i < t->shape_count; i++)
		if (t->shapes[i].count > 0 && t->shapes[i].milli > 0)
			return true;
	return false;
}

static int add_clones(const struct rp_trace *t, struct rp_order *o, const uint32_t *sorted,
		      uint64_t seed, int64_t target, struct err *err)
{
	struct rng rng;
	int rc = 0;

	if (!any_gpu(t))
		return err_set(err, ERR_INVALID,
			       "no pod of the trace asks for a GPU: it cannot be inflated");
	rng_init(&rng, seed ^ STREAM_CLONES);
	while (rc == 0) {
		uint32_t pod = sorted[rng_below(&rng, t->pod_count)];

		if (o->milli + t->shapes[t->pods[pod]].device_milli > target)
			break;
		rc = add_pod(t, o, pod, err);
	}
	return rc;
}

/* Random pods go, the others keep their places. */
static int drop_random(const struct rp_trace *t, struct rp_order *o, uint64_t seed, int64_t target,
		       struct err *err)
{
	uint32_t *victims = malloc((o->pod_count > 0 ? o->pod_count : 1) * sizeof(*victims));
	size_t kept = 0;
	struct rng rng;

	if (victims == NULL)
		return out_of_memory(err);
	for (uint32_t i = 0; i < o->pod_count; i++)
		victims[i] = i;
	rng_init(&rng, seed ^ STREAM_CLONES);
	shuffle(victims, o->pod_count, &rng);
	for (size_t i = 0; i < o->pod_count && o->milli > target; i++) {
		o->milli -= t->shapes[t->pods[o->pods[victims[i]]]].milli;
		o->pods[victims[i]] = UINT32_MAX;
	}
	for (size_t i = 0; i < o->pod_count; i++)
		if (o->pods[i] != UINT32_MAX)
			o->pods[kept++] = o->pods[i];
	o->pod_count = kept;
	free(victims);
	return 0;
}

static int make_ranks(const struct rp_trace *t, struct rp_order *o, uint64_t seed, struct err *err)
{
	uint32_t *sorted = sorted_ids(t->node_names, t->node_count);
	struct rng rng;

	o->ranks = calloc(t->node_count + 1, sizeof(*o->ranks));
	if (sorted == NULL || o->ranks == NULL) {
		free(sorted);
		return out_of_memory(err);
	}
	rng_init(&rng, seed ^ STREAM_RANKS);
	shuffle(sorted, t->node_count, &rng);
	for (uint32_t i = 0; i < t->node_count; i++)
		o->ranks[sorted[i]] = i;
	free(sorted);
	return 0;
}

static int make_arrivals(const struct rp_trace *t, const struct rp_order_options *opt,
			 struct rp_order *o, struct err *err)
{
	uint32_t *sorted = sorted_ids(t->pod_names, t->pod_count);
	int64_t target = arith_mul_div_floor(t->gpu_milli, opt->inflate_nano, 1000000000);
	struct rng rng;
	int rc = 0;

	if (sorted == NULL)
		return out_of_memory(err);
	for (uint32_t i = 0; rc == 0 && i < t->pod_count; i++)
		rc = add_pod(t, o, opt->keep_file_order ? i : sorted[i], err);
	if (rc == 0 && !opt->keep_file_order) {
		rng_init(&rng, opt->seed ^ STREAM_PODS);
		shuffle(o->pods, o->pod_count, &rng);
	}
	if (rc == 0 && opt->inflate_nano != RP_NO_INFLATION) {
		if (o->milli > target)
			rc = drop_random(t, o, opt->seed, target, err);
		else
			rc = add_clones(t, o, sorted, opt->seed, target, err);
	}
	free(sorted);
	return rc;
}

int rp_order_make(const struct rp_trace *t, const struct rp_order_options *opt,
		  struct rp_order *ret, struct err *err)
{
	struct rp_order o = {0};
	int rc = make_arrivals(t, opt, &o, err);

	if (rc == 0 && !rp_trace_is_json(t))
		rc = make_ranks(t, &o, opt->seed, err);
	if (rc < 0) {
		rp_order_fini(&o);
		return rc;
	}
	*ret = o;
	return 0;
}
