#include "replay/stage.h"

#include <stdlib.h>
#include <string.h>

#define POPULARITY_PERCENT 95
#define SHAPES_MIN 64

static int out_of_memory(struct err *err)
{
	return err_set(err, ERR_NOMEM, "out of memory");
}

/* FGD's typical set of the trace as it is, before shuffling and clones. */
static int make_fgd(struct rp_stage *s, struct err *err)
{
	struct fr_counts *counts = fr_counts_new();
	struct fr_workload *w = NULL;
	int rc = counts != NULL ? 0 : out_of_memory(err);

	for (size_t i = 0; rc == 0 && i < s->t->shape_count; i++) {
		struct fr_class cls;

		if (s->t->shapes[i].count == 0)
			continue;
		fr_class_of(&s->t->shapes[i].req, &cls);
		rc = fr_counts_add(counts, &cls, s->t->shapes[i].count, err);
	}
	if (rc == 0) {
		w = fr_workload_build(counts, POPULARITY_PERCENT, false);
		s->fgd = w != NULL ? fr_measure_new(s->cluster, FR_FGD, w) : NULL;
		if (s->fgd == NULL)
			rc = out_of_memory(err);
	}
	fr_counts_free(counts);
	return rc;
}

/* All shapes of the trace, as far as their caches stay below about 1 GiB. */
static size_t shapes_max(const struct rp_stage *s)
{
	size_t fit = ((size_t)1 << 30) / (24 * (s->t->node_count + 1));

	if (s->opt->shapes_max > 0)
		return s->opt->shapes_max;
	if (fit < SHAPES_MIN)
		fit = SHAPES_MIN;
	return s->t->shape_count < fit ? s->t->shape_count + 1 : fit;
}

/* The pods as they will arrive: after clones, not as the shapes were counted. */
static int learn_all(struct rp_stage *s, struct err *err)
{
	int64_t *counts = calloc(s->t->shape_count + 1, sizeof(*counts));
	int rc = 0;

	if (counts == NULL)
		return out_of_memory(err);
	for (size_t i = 0; i < s->t->pod_count; i++)
		counts[s->t->pods[i]]++;
	for (size_t i = 0; rc == 0 && i < s->t->shape_count; i++)
		if (counts[i] > 0)
			rc = po_placer_learn_many(s->placer, &s->t->shapes[i].req, counts[i], err);
	free(counts);
	return rc;
}

static int make_placer(struct rp_stage *s, struct err *err)
{
	struct po_options opt = {
		.policy = s->opt->policy,
		.ties = s->opt->ties,
		.seed = s->opt->seed,
		.popularity_percent = POPULARITY_PERCENT,
		.shapes_max = shapes_max(s),
		.learn = s->opt->online,
	};
	int rc = 0;

	s->placer = po_placer_new(s->cluster, &opt);
	if (s->placer == NULL)
		return out_of_memory(err);
	if (!s->opt->policy->uses_measure)
		return 0;
	if (!s->opt->online)
		rc = learn_all(s, err);
	return rc == 0 ? po_placer_rebuild(s->placer, err) : rc;
}

static bool placer_has_fgd(const struct rp_stage *s)
{
	return s->opt->policy->uses_measure && s->opt->policy->measure == FR_FGD && !s->opt->online;
}

int rp_stage_fgd(struct rp_stage *s, struct po_fragmentation *ret, struct err *err)
{
	if (s->fgd == NULL)
		return po_placer_fragmentation(s->placer, ret, err);
	ret->n = fr_measure_total(s->fgd);
	ret->divisor = fr_measure_scale(s->fgd);
	ret->idle_milli = fr_measure_idle_total(s->fgd);
	return 0;
}

/* Sums over all nodes before the first arrival. */
static int take_stock(struct rp_stage *s, struct err *err)
{
	for (uint32_t id = 0; id < st_cluster_node_count(s->cluster); id++) {
		const struct st_node *n = st_cluster_node(s->cluster, id);

		if (s->fgd != NULL && fr_measure_sync(s->fgd, id) < 0)
			return out_of_memory(err);
		if (!n->present)
			continue;
		s->total_milli += (int64_t)n->gpu_count * RP_GPU_UNITS;
		s->used_milli += rp_node_used_milli(n);
	}
	if (s->total_milli == 0)
		return err_set(err, ERR_INVALID, "the nodes have no GPU");
	return 0;
}

int rp_stage_open(struct rp_stage *s, const struct rp_trace *t, const uint32_t *ranks,
		  const struct rp_run_options *opt, struct err *err)
{
	int rc;

	*s = (struct rp_stage){.t = t, .opt = opt};
	rc = rp_trace_cluster(t, ranks, &s->cluster, err);
	if (rc == 0 && !opt->bare && !placer_has_fgd(s))
		rc = make_fgd(s, err);
	if (rc == 0)
		rc = take_stock(s, err);
	return rc == 0 ? make_placer(s, err) : rc;
}

void rp_stage_close(struct rp_stage *s)
{
	po_placer_free(s->placer);
	fr_measure_free(s->fgd);
	st_cluster_free(s->cluster);
	*s = (struct rp_stage){0};
}

/* "arrival-17": the UID of a pod of that number. */
#define UID_CAP 32

static const char *uid_of(uint64_t number, char buf[UID_CAP])
{
	char *p = buf + UID_CAP - 1;

	for (*p = '\0';; number /= 10) {
		*--p = (char)('0' + number % 10);
		if (number < 10)
			break;
	}
	p -= 8;
	memcpy(p, "arrival-", 8);
	return p;
}

int rp_stage_book(struct rp_stage *s, uint64_t number, const char *name,
		  const struct st_request *req, const struct st_decision *d, struct err *err)
{
	const struct st_node *n = st_cluster_node(s->cluster, d->node);
	char buf[UID_CAP];
	struct st_pod_ident pod = {
		.uid = uid_of(number, buf),
		.ns = "",
		.name = name,
		.cpu_milli = req->cpu_milli,
		.mem_mib = req->mem_mib,
		.memory_bound = req->workload == ST_WORKLOAD_MEMORY_BOUND,
	};
	int64_t before = rp_node_used_milli(n);
	int rc = st_cluster_reserve(s->cluster, &pod, d, err);

	if (rc == 0)
		rc = st_cluster_pod_move(s->cluster, pod.uid, ST_EVENT_ACCEPTED, err);
	if (rc == 0 && s->fgd != NULL && fr_measure_sync(s->fgd, d->node) < 0)
		rc = out_of_memory(err);
	if (rc < 0)
		return rc == ERR_NOMEM ? rc : err_prefix(err, rc, "pod %s, %s", name, pod.uid);
	s->used_milli += rp_node_used_milli(n) - before;
	return 0;
}

int rp_stage_leave(struct rp_stage *s, uint64_t number, uint32_t node, struct err *err)
{
	const struct st_node *n = st_cluster_node(s->cluster, node);
	int64_t before = rp_node_used_milli(n);
	char buf[UID_CAP];
	int rc = st_cluster_pod_move(s->cluster, uid_of(number, buf), ST_EVENT_GONE, err);

	if (rc == 0 && s->fgd != NULL && fr_measure_sync(s->fgd, node) < 0)
		rc = out_of_memory(err);
	if (rc < 0)
		return rc;
	s->used_milli += rp_node_used_milli(n) - before;
	return 0;
}

int rp_stage_arrived(struct rp_stage *s, struct err *err)
{
	return po_placer_arrival(s->placer) ? po_placer_reprice(s->placer, err) : 0;
}
