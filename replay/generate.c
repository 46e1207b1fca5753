#include "replay/generate.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/quantity.h"
#include "base/rng.h"
#include "state/request.h"

#define FLUSH_BYTES ((size_t)64 * 1024)
#define MIB_PER_CORE 4608
#define TYPES_MAX 64

static int flush(FILE *out, struct buf *b, bool all, struct err *err)
{
	if (!buf_ok(b))
		return err_set(err, ERR_NOMEM, "out of memory");
	if (b->len < FLUSH_BYTES && !all)
		return 0;
	if (fwrite(b->data, 1, b->len, out) != b->len || (all && fflush(out) != 0))
		return err_set(err, ERR_INTERNAL, "cannot write the table");
	buf_reset(b);
	return 0;
}

/* The part of *s up to the separator, cut off from it, in buf; false when it does not fit. */
static bool cut(const char **s, char separator, char buf[64])
{
	const char *stop = strchrnul(*s, separator);
	size_t len = (size_t)(stop - *s);

	if (len >= 64)
		return false;
	memcpy(buf, *s, len);
	buf[len] = '\0';
	*s = *stop != '\0' ? stop + 1 : stop;
	return true;
}

/* ---- nodes ---- */

struct node_type {
	char model[64];
	int64_t gpus, cores, weight;
};

static const struct node_type openb_nodes[] = {
	{"G2", 8, 96, 549},     {"T4", 2, 104, 387},    {"P100", 2, 16, 107},
	{"G3", 8, 128, 39},     {"V100M16", 4, 32, 28}, {"P100", 2, 64, 22},
	{"V100M32", 8, 96, 21}, {"V100M16", 1, 8, 19},  {"T4", 4, 96, 17},
	{"V100M32", 4, 48, 9},  {"V100M16", 8, 64, 7},  {"P100", 1, 8, 3},
	{"P100", 2, 8, 2},      {"A10", 1, 128, 2},     {"V100M16", 8, 82, 1},
};

static int parse_type(const char *text, struct node_type *ret, struct err *err)
{
	const char *s = text;
	char gpus[64], cores[64], weight[64];
	int rc;

	if (!cut(&s, ':', ret->model) || !cut(&s, 'x', gpus) || !cut(&s, ':', cores) ||
	    !cut(&s, ',', weight) || strpbrk(ret->model, ",|\"") != NULL)
		return err_set(err, ERR_INVALID, "\"%s\" is not MODEL:GPUSxCORES:WEIGHT", text);
	if (gpus[0] == '\0' || cores[0] == '\0' || weight[0] == '\0')
		return err_set(err, ERR_INVALID, "\"%s\": the %s missing (MODEL:GPUSxCORES:WEIGHT)",
			       text,
			       gpus[0] == '\0'    ? "GPUs are"
			       : cores[0] == '\0' ? "cores are"
						  : "weight is");
	rc = integer_parse(gpus, 0, ST_GPUS_MAX, &ret->gpus, err);
	if (rc == 0)
		rc = integer_parse(cores, 1, 100000, &ret->cores, err);
	if (rc == 0)
		rc = integer_parse(weight, 1, 1000000, &ret->weight, err);
	return rc < 0 ? err_prefix(err, rc, "\"%s\"", text) : 0;
}

static int parse_types(const char *mix, struct node_type types[TYPES_MAX], size_t *ret_count,
		       struct err *err)
{
	const char *s = mix;
	size_t n = 0;

	if (mix == NULL) {
		memcpy(types, openb_nodes, sizeof(openb_nodes));
		*ret_count = sizeof(openb_nodes) / sizeof(openb_nodes[0]);
		return 0;
	}
	for (; *s != '\0'; n++) {
		char one[64];
		int rc;

		if (n == TYPES_MAX || !cut(&s, ',', one))
			return err_set(err, ERR_INVALID, "--mix: too long");
		rc = parse_type(one, &types[n], err);
		if (rc < 0)
			return err_prefix(err, rc, "--mix");
	}
	*ret_count = n;
	return 0;
}

/* How many of `count` nodes are of each type: by weight, the largest remainders rounded up. */
static void share_out(const struct node_type *types, size_t n, int64_t count, int64_t *ret)
{
	int64_t sum = 0, given = 0;

	for (size_t i = 0; i < n; i++)
		sum += types[i].weight;
	for (size_t i = 0; i < n; i++)
		given += ret[i] = count * types[i].weight / sum;
	while (given < count) {
		size_t best = 0;
		int64_t most = -1;

		for (size_t i = 0; i < n; i++) {
			int64_t rest = count * types[i].weight - ret[i] * sum;

			if (rest > most) {
				most = rest;
				best = i;
			}
		}
		ret[best]++;
		given++;
	}
}

/* The number of nodes that come nearest to that many GPUs. */
static int64_t count_for_gpus(const struct node_type *types, size_t n, int64_t gpus)
{
	int64_t weight = 0, weighted = 0;

	for (size_t i = 0; i < n; i++) {
		weight += types[i].weight;
		weighted += types[i].weight * types[i].gpus;
	}
	return weighted > 0 ? (gpus * weight + weighted / 2) / weighted : 0;
}

static void node_row(struct buf *b, int64_t i, const struct node_type *type)
{
	buf_printf(b, "node-%06" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%s\n", i,
		   type->cores * 1000, type->cores * MIB_PER_CORE, type->gpus,
		   type->gpus > 0 ? type->model : "");
}

int rp_generate_nodes(FILE *out, const struct rp_generate_options *opt, struct err *err)
{
	struct node_type types[TYPES_MAX] = {0};
	int64_t left[TYPES_MAX], count = opt->count;
	struct buf b = BUF_INIT;
	struct rng rng;
	size_t n = 0;
	int rc = parse_types(opt->mix, types, &n, err);

	if (rc < 0)
		return rc;
	if (count == 0)
		count = count_for_gpus(types, n, opt->gpus_total);
	if (n == 0 || count == 0)
		return err_set(err, ERR_INVALID, "no nodes to make");
	share_out(types, n, count, left);
	rng_init(&rng, opt->seed);
	buf_puts(&b, "sn,cpu_milli,memory_mib,gpu,model\n");
	for (int64_t i = 0; rc == 0 && i < count; i++) {
		/* A draw without return: names do not follow the hardware. */
		int64_t k = (int64_t)rng_below(&rng, (uint64_t)(count - i));
		size_t type = 0;

		while (k >= left[type])
			k -= left[type++];
		left[type]--;
		node_row(&b, i, &types[type]);
		rc = flush(out, &b, false, err);
	}
	if (rc == 0)
		rc = flush(out, &b, true, err);
	buf_fini(&b);
	return rc;
}

/* ---- pods ---- */

enum { KIND_CPU, KIND_SHARED, KIND_1, KIND_2, KIND_4, KIND_8, KIND_COUNT };

static const struct {
	const char *name;
	int64_t gpus, weight;
} kinds[KIND_COUNT] = {
	[KIND_CPU] = {"cpu", 0, 1088}, [KIND_SHARED] = {"shared", 1, 3078},
	[KIND_1] = {"1", 1, 3911},     [KIND_2] = {"2", 2, 16},
	[KIND_4] = {"4", 4, 15},       [KIND_8] = {"8", 8, 44},
};

/* Sizes and hosts of a pod kind with their weights. For shared pods the weights of 810, 470, 320 and
 * 650 milli are the published counts; no more than 106 of 3,078 are at most 190. */
struct pod_class {
	int64_t milli, cores_milli, mem_mib, weight;
};

static const struct pod_class cpu_classes[] = {
	{0, 1000, 2048, 60},   {0, 2000, 4096, 180},  {0, 4000, 8192, 240},   {0, 6000, 16384, 120},
	{0, 8000, 16384, 230}, {0, 12000, 32768, 90}, {0, 16000, 32768, 110}, {0, 32000, 65536, 58},
};
static const struct pod_class shared_classes[] = {
	{810, 3000, 12288, 700}, {810, 6000, 16384, 270}, {810, 8000, 24576, 108},
	{470, 6000, 16384, 520}, {470, 8000, 16384, 230}, {320, 4000, 8192, 218},
	{320, 6000, 12288, 110}, {650, 6000, 16384, 150}, {650, 12000, 32768, 103},
	{50, 1000, 2048, 28},    {100, 2000, 4096, 40},   {150, 2000, 6144, 20},
	{190, 4000, 8192, 18},   {210, 4000, 8192, 60},   {250, 4000, 8192, 80},
	{280, 4000, 12288, 45},  {350, 6000, 12288, 62},  {390, 6000, 16384, 70},
	{440, 8000, 16384, 58},  {460, 8000, 24576, 60},  {500, 8000, 16384, 70},
	{560, 8000, 24576, 36},  {720, 8000, 24576, 22},
};
static const struct pod_class one_classes[] = {
	{1000, 4000, 16384, 420},  {1000, 6000, 24576, 480},  {1000, 8000, 32768, 860},
	{1000, 10000, 40960, 500}, {1000, 11000, 49152, 940}, {1000, 16000, 49152, 380},
	{1000, 24000, 65536, 190}, {1000, 32000, 98304, 90},  {1000, 48000, 131072, 51},
};
static const struct pod_class two_classes[] = {{1000, 16000, 65536, 10}, {1000, 24000, 98304, 6}};
static const struct pod_class four_classes[] = {{1000, 32000, 131072, 9}, {1000, 44000, 196608, 6}};
static const struct pod_class eight_classes[] = {{1000, 64000, 262144, 24},
						 {1000, 88000, 327680, 20}};

#define CLASSES(a)                                                                                 \
	{                                                                                          \
		a, sizeof(a) / sizeof((a)[0])                                                      \
	}
static const struct {
	const struct pod_class *classes;
	size_t count;
} classes_of[KIND_COUNT] = {
	[KIND_CPU] = CLASSES(cpu_classes), [KIND_SHARED] = CLASSES(shared_classes),
	[KIND_1] = CLASSES(one_classes),   [KIND_2] = CLASSES(two_classes),
	[KIND_4] = CLASSES(four_classes),  [KIND_8] = CLASSES(eight_classes),
};

static const char *const specs[] = {
	"G2", "T4", "P100", "G2|G3", "V100M16|V100M32", "V100M32|V100M16"};

static int parse_kinds(const char *mix, int64_t weights[KIND_COUNT], struct err *err)
{
	int64_t sum = 0;

	for (size_t k = 0; k < KIND_COUNT; k++)
		weights[k] = mix == NULL ? kinds[k].weight : 0;
	for (const char *s = mix; s != NULL && *s != '\0';) {
		char one[64], name[64], value[64];
		const char *p = one;
		size_t k = 0;
		int rc;

		if (!cut(&s, ',', one) || !cut(&p, '=', name) || !cut(&p, '\0', value))
			return err_set(err, ERR_INVALID, "--mix: too long");
		while (k < KIND_COUNT && strcmp(kinds[k].name, name) != 0)
			k++;
		if (k == KIND_COUNT)
			return err_set(err, ERR_INVALID,
				       "--mix: \"%s\" is none of cpu, shared, 1, 2, 4, 8", name);
		rc = integer_parse(value, 0, 1000000000, &weights[k], err);
		if (rc < 0)
			return err_prefix(err, rc, "--mix: %s", name);
	}
	for (size_t k = 0; k < KIND_COUNT; k++)
		sum += weights[k];
	return sum > 0 ? 0 : err_set(err, ERR_INVALID, "--mix: all weights are 0");
}

static size_t draw_kind(struct rng *rng, const int64_t weights[KIND_COUNT])
{
	int64_t sum = 0, k;
	size_t i = 0;

	for (size_t n = 0; n < KIND_COUNT; n++)
		sum += weights[n];
	if (sum <= 0)
		return KIND_CPU;
	k = (int64_t)rng_below(rng, (uint64_t)sum);
	while (k >= weights[i])
		k -= weights[i++];
	return i;
}

static const struct pod_class *draw_class(struct rng *rng, size_t kind)
{
	const struct pod_class *c = classes_of[kind].classes;
	int64_t sum = 0, k;

	for (size_t i = 0; i < classes_of[kind].count; i++)
		sum += c[i].weight;
	if (sum <= 0)
		return c;
	for (k = (int64_t)rng_below(rng, (uint64_t)sum); k >= c->weight; c++)
		k -= c->weight;
	return c;
}

static void pod_row(struct buf *b, int64_t i, size_t kind, const struct pod_class *c,
		    const char *spec)
{
	char name[32];

	snprintf(name, sizeof(name), "pod-%07" PRId64 ",", i);
	buf_puts(b, name);
	buf_put_i64(b, c->cores_milli);
	buf_putc(b, ',');
	buf_put_i64(b, c->mem_mib);
	buf_putc(b, ',');
	buf_put_i64(b, kinds[kind].gpus);
	buf_putc(b, ',');
	buf_put_i64(b, c->milli);
	buf_putc(b, ',');
	buf_puts(b, spec);
	buf_putc(b, '\n');
}

int rp_generate_pods(FILE *out, const struct rp_generate_options *opt, struct err *err)
{
	int64_t weights[KIND_COUNT], milli = 0;
	struct buf b = BUF_INIT;
	struct rng rng;
	int rc = parse_kinds(opt->mix, weights, err);

	if (rc < 0)
		return rc;
	if (opt->count == 0 && weights[KIND_CPU] > 0) {
		int64_t gpu = 0;

		for (size_t k = KIND_SHARED; k < KIND_COUNT; k++)
			gpu += weights[k];
		if (gpu == 0)
			return err_set(err, ERR_INVALID,
				       "--mix: pods without GPU never reach "
				       "--gpus-total");
	}
	rng_init(&rng, opt->seed);
	buf_puts(&b, "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n");
	for (int64_t i = 0; rc == 0; i++) {
		size_t kind = draw_kind(&rng, weights);
		const struct pod_class *c = draw_class(&rng, kind);
		const char *spec = "";

		if (opt->count > 0 ? i >= opt->count : milli >= opt->gpus_total * 1000)
			break;
		if (kind != KIND_CPU && (int64_t)rng_below(&rng, 100) < opt->spec_percent)
			spec = specs[rng_below(&rng, sizeof(specs) / sizeof(specs[0]))];
		milli += kinds[kind].gpus * c->milli;
		pod_row(&b, i, kind, c, spec);
		rc = flush(out, &b, false, err);
	}
	if (rc == 0)
		rc = flush(out, &b, true, err);
	buf_fini(&b);
	return rc;
}
