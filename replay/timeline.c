#include "replay/timeline.h"

#include <stdlib.h>

#include "base/arith.h"
#include "base/rng.h"
#include "fragmentation/fixed.h"

#define STREAM_VISITS UINT64_C(0x7669736974730000)
#define STAY_MAX_MS (INT64_C(31) * 86400 * 1000)
#define LN2_Q16 INT64_C(45426)   /* ln 2, 16 fraction bits */
#define LOG2E_Q16 INT64_C(94548) /* 1 / ln 2, likewise */

void rp_timeline_fini(struct rp_timeline *l)
{
	free(l->visits);
	*l = (struct rp_timeline){0};
}

static int out_of_memory(struct err *err)
{
	return err_set(err, ERR_NOMEM, "out of memory");
}

struct sortable {
	struct rp_visit v;
	size_t i;
};

static int by_arrival(const void *a, const void *b)
{
	const struct sortable *x = a, *y = b;

	if (x->v.at_ms != y->v.at_ms)
		return x->v.at_ms < y->v.at_ms ? -1 : 1;
	return x->i < y->i ? -1 : 1;
}

int rp_timeline_trace(const struct rp_trace *t, struct rp_timeline *ret, struct err *err)
{
	struct rp_timeline l = {0};
	struct sortable *all = malloc((t->pod_count + 1) * sizeof(*all));

	l.visits = malloc((t->pod_count + 1) * sizeof(*l.visits));
	if (all == NULL || l.visits == NULL) {
		free(all);
		free(l.visits);
		return out_of_memory(err);
	}
	for (uint32_t i = 0; i < t->pod_count; i++) {
		struct rp_stay s = rp_trace_stay(t, i);

		if (s.at_ms == RP_TIME_UNKNOWN || s.stay_ms == RP_TIME_UNKNOWN) {
			l.left_out++;
			continue;
		}
		all[l.count] = (struct sortable){{.at_ms = s.at_ms, .stay_ms = s.stay_ms, .pod = i},
						 l.count};
		l.count++;
	}
	qsort(all, l.count, sizeof(*all), by_arrival);
	for (size_t i = 0; i < l.count; i++)
		l.visits[i] = all[i].v;
	free(all);
	if (l.count == 0) {
		free(l.visits);
		return err_set(err, ERR_INVALID,
			       "no pod of the trace has a time of arrival and one of departure");
	}
	l.begin_ms = l.visits[0].at_ms;
	l.end_ms = l.visits[l.count - 1].at_ms;
	*ret = l;
	return 0;
}

/* -ln(u) for u uniform in (0, 1), 16 fraction bits. */
static int64_t draw_exponential(const struct fr_fixed *f, struct rng *rng)
{
	uint64_t v = (rng_next(rng) >> 24) | 1; /* 40 bits, not 0 */

	return ((((int64_t)40 << 16) - fr_log2(f, v)) * LN2_Q16) >> 16;
}

/* Nearly normal, mean 0, deviation 1, 16 fraction bits: the sum of twelve uniforms. */
static int64_t draw_normal(struct rng *rng)
{
	int64_t sum = 0;

	for (int i = 0; i < 4; i++) {
		uint64_t x = rng_next(rng);

		sum += (int64_t)(x & 0xffff) + (int64_t)(x >> 16 & 0xffff) +
		       (int64_t)(x >> 32 & 0xffff);
	}
	return sum - (6 << 16) + 6;
}

/* How made-up stays are distributed. */
struct law {
	struct fr_fixed f;
	const struct rp_made *how;
	int64_t mean_ms; /* of a stay, the longest ones cut off */
};

/* median * exp(sigma * z), unbounded below 2^62; z has 16 fraction bits. */
static int64_t stay_at(const struct law *law, int64_t z, bool biased)
{
	int64_t sigma = (int64_t)(((__int128)law->how->sigma_nano << 16) / 1000000000);
	int64_t x = (z * sigma) >> 16, up;
	__int128 stay;

	if (biased)
		x += (sigma * sigma) >> 16;
	x = (x * LOG2E_Q16) >> 16;           /* log2 of stay / median */
	up = x > 0 ? (x + 0xffff) >> 16 : 0; /* 2^x = 2^up * 2^(x - up) */
	if (up > 40)
		return INT64_MAX;
	stay = (__int128)law->how->median_ms * fr_exp2(&law->f, x - (up << 16));
	stay = up > 30 ? stay << (up - 30) : stay >> (30 - up);
	return stay > INT64_MAX ? INT64_MAX : stay < 1 ? 1 : (int64_t)stay;
}

static int64_t draw_stay(const struct law *law, struct rng *rng)
{
	return arith_min(stay_at(law, draw_normal(rng), false), STAY_MAX_MS);
}

/* The stay of a pod that is met running: long ones are met more often, in proportion. For a
 * log-normal distribution that is the same one with its median moved by exp(sigma^2). */
static int64_t draw_met(const struct law *law, struct rng *rng)
{
	for (;;) {
		int64_t stay = stay_at(law, draw_normal(rng), true);

		if (stay <= STAY_MAX_MS)
			return stay;
		if ((int64_t)rng_below(rng, (uint64_t)stay) < STAY_MAX_MS)
			return STAY_MAX_MS;
	}
}

/* By quadrature over -6 .. 6 standard deviations. */
static void law_init(struct law *law, const struct rp_made *how)
{
	__int128 sum = 0, weights = 0;

	fr_fixed_init(&law->f);
	law->how = how;
	for (int64_t z = -INT64_C(6) * 65536; z <= INT64_C(6) * 65536; z += 1024) {
		int64_t density = fr_exp2(&law->f, -((z * z >> 17) * LOG2E_Q16 >> 16));

		sum += (__int128)density * arith_min(stay_at(law, z, false), STAY_MAX_MS);
		weights += density;
	}
	law->mean_ms = (int64_t)(sum / weights);
}

static int64_t own_stay(const struct rp_trace *t, const struct rp_made *how, uint32_t pod)
{
	int64_t own = how->own_stays ? rp_trace_stay(t, pod).stay_ms : RP_TIME_UNKNOWN;

	return own == RP_TIME_UNKNOWN ? own : arith_min(arith_max(own, 1), STAY_MAX_MS);
}

/* What is drawn from: for each pod the GPU time it takes on average, and sums of stays. */
struct population {
	int64_t *until; /* until[i]: mean stays of pods 0..i, in seconds rounded up */
	__int128 work;  /* of all pods together: GPU milli * ms */
};

static int population_init(struct population *p, const struct rp_trace *t, const struct law *law,
			   struct err *err)
{
	int64_t sum = 0;

	p->until = calloc(t->pod_count + 1, sizeof(*p->until));
	if (p->until == NULL)
		return out_of_memory(err);
	p->work = 0;
	for (uint32_t i = 0; i < t->pod_count; i++) {
		int64_t own = own_stay(t, law->how, i);
		int64_t stay = own == RP_TIME_UNKNOWN ? law->mean_ms : own;

		sum += stay / 1000 + 1;
		p->until[i] = sum;
		p->work += (__int128)t->shapes[t->pods[i]].milli * stay;
	}
	return 0;
}

static uint32_t draw_met_pod(const struct population *p, size_t count, struct rng *rng)
{
	int64_t x = (int64_t)rng_below(rng, (uint64_t)arith_max(p->until[count - 1], 1));
	size_t lo = 0, hi = count - 1;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (p->until[mid] > x)
			hi = mid;
		else
			lo = mid + 1;
	}
	return (uint32_t)lo;
}

static int add_visit(struct rp_timeline *l, size_t *cap, struct rp_visit v, struct err *err)
{
	if (l->count == *cap) {
		size_t want = *cap > 0 ? 2 * *cap : 1024;
		struct rp_visit *more = reallocarray(l->visits, want, sizeof(*more));

		if (more == NULL)
			return out_of_memory(err);
		l->visits = more;
		*cap = want;
	}
	l->visits[l->count++] = v;
	return 0;
}

/* The pods that run already when time begins: as many as that load keeps running. */
static int add_met(const struct rp_trace *t, const struct law *law, const struct population *p,
		   struct rng *rng, struct rp_timeline *l, size_t *cap, struct err *err)
{
	int64_t want = arith_mul_div_floor(t->gpu_milli, law->how->load_nano, 1000000000);

	for (int64_t milli = 0; milli < want;) {
		struct rp_visit v = {.pod = draw_met_pod(p, t->pod_count, rng)};
		int64_t own = own_stay(t, law->how, v.pod);
		int rc;

		v.stay_ms = own == RP_TIME_UNKNOWN ? draw_met(law, rng) : own;
		v.stay_ms =
			(int64_t)rng_below(rng, (uint64_t)v.stay_ms) + 1; /* what is left of it */
		milli += t->shapes[t->pods[v.pod]].milli;
		rc = add_visit(l, cap, v, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int add_arrivals(const struct rp_trace *t, const struct law *law, const struct population *p,
			struct rng *rng, struct rp_timeline *l, size_t *cap, struct err *err)
{
	const struct rp_made *how = law->how;
	size_t count = how->count > 0 ? how->count : t->pod_count;
	/* Mean time between two arrivals, ms with 16 fraction bits. */
	__int128 gap = (p->work * 1000000000 / how->load_nano << 16) / t->gpu_milli /
		       (int64_t)t->pod_count;
	__int128 at = 0;
	uint32_t *pods = malloc((t->pod_count + 1) * sizeof(*pods));
	int rc = 0;

	if (pods == NULL)
		return out_of_memory(err);
	for (uint32_t i = 0; i < t->pod_count; i++)
		pods[i] = i;
	for (size_t i = 0; rc == 0 && i < count; i++) {
		size_t left = how->count > 0 ? t->pod_count : t->pod_count - i;
		size_t k = (size_t)rng_below(rng, left);
		struct rp_visit v = {.pod = pods[k]};
		int64_t own = own_stay(t, how, v.pod);

		if (how->count == 0)
			pods[k] = pods[left - 1];
		at += gap * draw_exponential(&law->f, rng) >> 16;
		v.at_ms = (int64_t)(at >> 16);
		v.stay_ms = own == RP_TIME_UNKNOWN ? draw_stay(law, rng) : own;
		rc = add_visit(l, cap, v, err);
	}
	free(pods);
	return rc;
}

int rp_timeline_made(const struct rp_trace *t, const struct rp_made *how, struct rp_timeline *ret,
		     struct err *err)
{
	struct rp_timeline l = {0};
	struct population p = {0};
	struct law *law = malloc(sizeof(*law));
	size_t cap = 0;
	struct rng rng;
	int rc;

	if (t->pod_count == 0) {
		free(law);
		return err_set(err, ERR_INVALID, "no pod in the trace");
	}
	if (law == NULL)
		return out_of_memory(err);
	law_init(law, how);
	rc = population_init(&p, t, law, err);
	if (rc == 0 && (p.work == 0 || t->gpu_milli == 0))
		rc = err_set(err, ERR_INVALID, "no pod of the trace asks for a GPU");
	if (rc == 0) {
		rng_init(&rng, how->seed ^ STREAM_VISITS);
		rc = add_met(t, law, &p, &rng, &l, &cap, err);
	}
	if (rc == 0)
		rc = add_arrivals(t, law, &p, &rng, &l, &cap, err);
	free(p.until);
	free(law);
	if (rc < 0 || l.count == 0) {
		free(l.visits);
		return rc < 0 ? rc : err_set(err, ERR_INVALID, "nothing arrives");
	}
	/* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): there are visits */
	l.end_ms = l.visits[l.count - 1].at_ms;
	l.begin_ms = l.end_ms / 4;
	*ret = l;
	return 0;
}
