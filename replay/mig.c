#include "replay/mig.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/rng.h"
#include "replay/mig_bound.h"

#define UID_CAP 24
#define GPU_CPU 1000000 /* milli of each node: never the bound here */

/* An instance that will end. */
struct stay {
	double end;
	uint64_t number;
	int profile;
};

struct heap {
	struct stay *v;
	size_t count, cap;
};

struct sim {
	const struct rp_mig_options *opt;
	struct st_cluster *c;
	struct po_placer *p;
	struct heap heap;
	struct rng rng;
	uint64_t number;
	double now, stranded_sum;
	int64_t stranded_count;
	int64_t running[ST_MIG_PROFILES_MAX];
	struct err *err;
};

/* ---- draws ---- */

/* In (0, 1]. */
static double draw(struct rng *r)
{
	return (double)((rng_next(r) >> 11) + 1) * 0x1p-53;
}

static double exponential(struct rng *r, double mean)
{
	return -log(draw(r)) * mean;
}

static int draw_profile(struct sim *s)
{
	int64_t at = (int64_t)rng_below(&s->rng, (uint64_t)s->opt->mix->total);
	int p = 0;

	while (at >= s->opt->mix->weight[p])
		at -= s->opt->mix->weight[p++];
	return p;
}

/* ---- those that stay, the first to end on top ---- */

static int heap_push(struct heap *h, struct stay s)
{
	size_t i = h->count;

	if (h->count == h->cap) {
		size_t cap = h->cap ? h->cap * 2 : 256;
		struct stay *v = realloc(h->v, cap * sizeof(*v));

		if (v == NULL)
			return ERR_NOMEM;
		h->v = v;
		h->cap = cap;
	}
	h->count++;
	for (; i > 0 && h->v[(i - 1) / 2].end > s.end; i = (i - 1) / 2)
		h->v[i] = h->v[(i - 1) / 2];
	h->v[i] = s;
	return 0;
}

static struct stay heap_pop(struct heap *h)
{
	struct stay top = h->v[0], last = h->v[--h->count];
	size_t i = 0;

	for (;;) {
		size_t k = 2 * i + 1;

		if (k >= h->count)
			break;
		if (k + 1 < h->count && h->v[k + 1].end < h->v[k].end)
			k++;
		if (h->v[k].end >= last.end)
			break;
		h->v[i] = h->v[k];
		i = k;
	}
	h->v[i] = last;
	return top;
}

/* ---- the cluster ---- */

static int make_cluster(struct sim *s)
{
	const struct rp_mig_options *o = s->opt;
	struct st_gpu_spec *gpus = calloc(o->gpus_per_node, sizeof(*gpus));
	int rc = 0;

	s->c = st_cluster_new(NULL);
	if (s->c == NULL || gpus == NULL) {
		free(gpus);
		return err_set(s->err, ERR_NOMEM, "out of memory");
	}
	for (uint32_t g = 0; g < o->gpus_per_node; g++) {
		gpus[g].mem_mib = o->mem_mib;
		gpus[g].mig_enabled = true;
		gpus[g].has_geometry = true;
		gpus[g].geometry = *o->geometry;
	}
	for (uint32_t i = 0; rc == 0 && i < o->nodes; i++) {
		char name[UID_CAP];
		struct st_node_spec spec = {.name = name,
					    .product = o->product,
					    .cpu_milli = GPU_CPU,
					    .mem_mib = GPU_CPU,
					    .has_rank = true,
					    .rank = i,
					    .gpu_count = o->gpus_per_node,
					    .gpus = gpus};

		snprintf(name, sizeof(name), "node-%04u", i);
		rc = st_cluster_node_put(s->c, &spec, NULL, s->err);
	}
	free(gpus);
	return rc;
}

static struct st_request request_of(const struct sim *s, int profile)
{
	struct st_request req = {.cpu_milli = 1, .item_count = 1};

	req.items[0] = (struct st_item){
		.container = "main", .kind = ST_KIND_MIG, .mode = ST_MODE_MIG, .count = 1};
	memcpy(req.items[0].profile, s->opt->geometry->profiles[profile].name, ST_MIG_NAME_CAP);
	return req;
}

static int make_placer(struct sim *s)
{
	struct po_options po = {
		.policy = s->opt->policy, .seed = s->opt->seed, .learn = s->opt->online};
	int rc = 0;

	s->p = po_placer_new(s->c, &po);
	if (s->p == NULL)
		return err_set(s->err, ERR_NOMEM, "out of memory");
	for (int p = 0; p < s->opt->geometry->profile_count && !s->opt->online; p++) {
		struct st_request req = request_of(s, p);

		for (int64_t i = 0; rc == 0 && i < s->opt->mix->weight[p]; i++)
			rc = po_placer_learn(s->p, &req, s->err);
	}
	return rc == 0 ? po_placer_rebuild(s->p, s->err) : rc;
}

/* ---- what happens ---- */

static int end_stays(struct sim *s)
{
	while (s->heap.count > 0 && s->heap.v[0].end <= s->now) {
		struct stay gone = heap_pop(&s->heap);
		char uid[UID_CAP];
		int rc;

		s->running[gone.profile]--;
		if (s->opt->policy == NULL)
			continue;
		snprintf(uid, sizeof(uid), "%llu", (unsigned long long)gone.number);
		rc = st_cluster_pod_move(s->c, uid, ST_EVENT_GONE, s->err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int begin_stay(struct sim *s, int profile, double stay)
{
	if (heap_push(&s->heap, (struct stay){s->now + stay, s->number, profile}) < 0)
		return err_set(s->err, ERR_NOMEM, "out of memory");
	s->running[profile]++;
	return 0;
}

/* All that run may be moved. */
static int arrive_packed(struct sim *s, int profile, double stay, bool *ret_placed)
{
	s->number++;
	s->running[profile]++;
	*ret_placed = rp_mig_packs(s->opt->geometry, s->running,
				   (int64_t)s->opt->nodes * s->opt->gpus_per_node);
	s->running[profile]--;
	return *ret_placed ? begin_stay(s, profile, stay) : 0;
}

/* *ret_placed: it found room. */
static int arrive(struct sim *s, int profile, double stay, bool *ret_placed)
{
	struct st_request req = request_of(s, profile);
	struct st_decision d;
	struct po_shape *shape;
	char uid[UID_CAP];
	struct st_pod_ident id = {.uid = uid, .ns = "replay", .name = uid, .cpu_milli = 1};
	uint32_t node;
	int rc;

	*ret_placed = false;
	s->number++;
	if (s->opt->online && po_placer_learn(s->p, &req, s->err) < 0)
		return ERR_NOMEM;
	if (po_placer_arrival(s->p) && po_placer_reprice(s->p, s->err) < 0)
		return ERR_NOMEM;
	shape = po_placer_ask(s->p, &req, s->number);
	if (shape == NULL)
		return err_set(s->err, ERR_NOMEM, "out of memory");
	node = po_shape_best(shape);
	if (node == ST_NONE)
		return 0;
	if (po_placer_choose(s->p, &req, node, s->number, &d) != BP_OK)
		return err_set(s->err, ERR_INTERNAL, "the node chosen takes no %s",
			       req.items[0].profile);
	snprintf(uid, sizeof(uid), "%llu", (unsigned long long)s->number);
	rc = st_cluster_reserve(s->c, &id, &d, s->err);
	if (rc == 0)
		rc = begin_stay(s, profile, stay);
	*ret_placed = rc == 0;
	return rc;
}

double rp_mig_stranded(const struct st_mig_geometry *g, const struct rp_mig_mix *mix,
		       uint64_t placed)
{
	int left = st_mig_units_free(g, placed);
	int64_t sum = 0;

	for (int p = 0; p < g->profile_count; p++)
		if (mix->weight[p] > 0)
			sum += mix->weight[p] *
			       (left - st_mig_max_more(g, placed, p) * g->profiles[p].units);
	return (double)sum / (double)mix->total;
}

static double stranded_now(const struct sim *s)
{
	double sum = 0;
	int64_t gpus = 0;

	for (uint32_t id = 0; id < st_cluster_node_count(s->c); id++) {
		const struct st_node *n = st_cluster_node(s->c, id);

		gpus += n->gpu_count;
		for (unsigned i = 0; i < n->gpu_count; i++)
			sum += rp_mig_stranded(s->opt->geometry, s->opt->mix,
					       n->gpus[i].mig_placed);
	}
	return sum / (double)gpus;
}

static int simulate(struct sim *s, struct rp_mig_result *ret)
{
	const struct rp_mig_options *o = s->opt;
	double units = 0, rate;
	int rc = 0;

	for (int p = 0; p < o->geometry->profile_count; p++)
		units += (double)o->mix->weight[p] * o->geometry->profiles[p].units;
	units /= (double)o->mix->total;
	rate = (double)o->load_permille / 1000 * o->nodes * o->gpus_per_node *
	       o->geometry->units_total / units;
	while (rc == 0 && s->now < o->warm + o->length) {
		int profile = draw_profile(s);
		double stay = exponential(&s->rng, 1);
		bool placed;

		s->now += exponential(&s->rng, 1 / rate);
		rc = end_stays(s);
		if (rc == 0)
			rc = o->policy != NULL ? arrive(s, profile, stay, &placed)
					       : arrive_packed(s, profile, stay, &placed);
		if (rc < 0 || s->now < o->warm)
			continue;
		ret->arrivals++;
		ret->units_arrived += o->geometry->profiles[profile].units;
		ret->placed += placed;
		ret->units_placed += placed ? o->geometry->profiles[profile].units : 0;
		s->stranded_sum += o->policy != NULL ? stranded_now(s) : 0;
		s->stranded_count++;
	}
	if (s->stranded_count > 0)
		ret->stranded = s->stranded_sum / (double)s->stranded_count;
	return rc;
}

static double cpu_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int rp_mig_run(const struct rp_mig_options *opt, struct rp_mig_result *ret, struct err *err)
{
	struct sim s = {.opt = opt, .err = err};
	struct rp_mig_result r = {0};
	double start = cpu_s();
	int rc;

	rng_init(&s.rng, opt->seed);
	rng_init(&s.rng, rng_next(&s.rng)); /* else a seed's draws are the next one's, shifted */
	rc = make_cluster(&s);
	if (rc == 0 && opt->policy != NULL)
		rc = make_placer(&s);
	if (rc == 0)
		rc = simulate(&s, &r);
	if (rc == 0)
		rc = st_cluster_check(s.c, ST_NONE, err);
	r.cpu_s = cpu_s() - start;
	po_placer_free(s.p);
	st_cluster_free(s.c);
	free(s.heap.v);
	if (rc == 0)
		*ret = r;
	return rc;
}
