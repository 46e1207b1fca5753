#include <stdlib.h>

#include "policy/policy_internal.h"

struct po_placer *po_placer_new(struct st_cluster *c, const struct po_options *opt)
{
	struct po_placer *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->cluster = c;
	if (opt)
		p->opt = *opt;
	p->policy = p->opt.policy ? p->opt.policy : po_policy_at(0);
	if (p->opt.shapes_max == 0)
		p->opt.shapes_max = PO_SHAPES_DEFAULT;
	if (p->opt.popularity_percent == 0)
		p->opt.popularity_percent = PO_POPULARITY_DEFAULT;
	p->generation = 1;
	p->counts = fr_counts_new();
	if (!p->counts) {
		free(p);
		return NULL;
	}
	return p;
}

void po_placer_free(struct po_placer *p)
{
	struct po_shape *s, *tmp;

	if (!p)
		return;
	HASH_ITER(hh, p->shapes, s, tmp) {
		HASH_DEL(p->shapes, s);
		po_shape_free(s);
	}
	fr_measure_free(p->measure);
	fr_measure_free(p->report);
	fr_counts_free(p->counts);
	free(p);
}

const struct po_policy *po_placer_policy(const struct po_placer *p)
{
	return p->policy;
}

const struct fr_workload *po_placer_workload(const struct po_placer *p)
{
	return p->measure ? fr_measure_workload(p->measure) : NULL;
}

struct fr_measure *po_placer_measure_build(struct po_placer *p, enum fr_kind kind)
{
	struct fr_workload *w = fr_workload_build(
		p->counts, kind == FR_BID ? 100 : p->opt.popularity_percent, kind == FR_CA);

	return w ? fr_measure_new(p->cluster, kind, w) : NULL;
}

int po_placer_rebuild(struct po_placer *p, struct err *err)
{
	if (p->policy->uses_measure) {
		struct fr_measure *m = po_placer_measure_build(p, p->policy->measure);

		if (!m)
			return err_set(err, ERR_NOMEM, "workload: out of memory");
		p->carried = p->measure && fr_measure_price_carry(m, p->measure);
		fr_measure_free(p->measure);
		p->measure = m;
		p->measure_pos = 0;
		p->priced = p->policy->measure != FR_BID || p->opt.prices_apart;
		p->outdated = p->opt.prices_apart;
		p->generation++;
	}
	fr_measure_free(p->report);
	p->report = NULL;
	p->learned = 0;
	return 0;
}

int po_placer_learn(struct po_placer *p, const struct st_request *req, struct err *err)
{
	return po_placer_learn_many(p, req, 1, err);
}

int po_placer_learn_many(struct po_placer *p, const struct st_request *req, int64_t n,
			 struct err *err)
{
	struct fr_class cls;
	int64_t total;
	int rc;

	fr_class_of(req, &cls);
	rc = fr_counts_add(p->counts, &cls, n, err);
	if (rc < 0)
		return rc;
	p->learned += n;
	if (!p->opt.learn)
		return 0;
	total = fr_counts_total(p->counts);
	if (total > PO_LEARN_WINDOW) {
		fr_counts_halve(p->counts);
		total = fr_counts_total(p->counts);
	}
	/* Often while little is known, seldom later: a rebuild drops every cached score. */
	if (p->learned < 16 || p->learned < total / 8)
		return 0;
	if (p->opt.prices_apart && po_placer_has_prices(p)) {
		p->learned = 0;
		p->outdated = true;
		return 0;
	}
	return po_placer_rebuild(p, err);
}

/* Takes in the cluster's changes since *pos. */
static int measure_sync(const struct po_placer *p, struct fr_measure *m, uint64_t *pos)
{
	const struct st_cluster *c = p->cluster;
	uint64_t end = st_cluster_log_end(c);
	int rc = fr_measure_tidy(m);

	if (rc < 0)
		*pos = 0; /* nodes that did not change are out of date, too */
	if (*pos < st_cluster_log_begin(c) || *pos == 0) {
		for (uint32_t id = 0; id < st_cluster_node_count(c); id++)
			if (fr_measure_sync(m, id) < 0)
				rc = ERR_NOMEM;
	} else {
		for (uint64_t i = *pos; i < end; i++)
			if (fr_measure_sync(m, st_cluster_log_at(c, i)) < 0)
				rc = ERR_NOMEM;
	}
	*pos = rc == 0 ? end : 0;
	return rc;
}

int po_placer_sync(struct po_placer *p)
{
	if (!p->policy->uses_measure)
		return 0;
	if (!p->measure && po_placer_rebuild(p, NULL) < 0)
		return ERR_NOMEM;
	if (measure_sync(p, p->measure, &p->measure_pos) < 0)
		return ERR_NOMEM;
	if (!p->priced) {
		p->priced = true;
		fr_measure_price_steps(p->measure,
				       p->carried ? PO_PRICE_STEPS_AGAIN : PO_PRICE_STEPS_START);
		fr_measure_price_publish(p->measure);
		p->generation++;
	}
	return 0;
}

bool po_placer_arrival(struct po_placer *p)
{
	return po_placer_has_prices(p) && ++p->arrivals % PO_PRICE_ARRIVALS == 0;
}

int po_placer_reprice(struct po_placer *p, struct err *err)
{
	if (po_placer_sync(p) < 0)
		return err_set(err, ERR_NOMEM, "prices: out of memory");
	fr_measure_price_steps(p->measure, 1);
	if (++p->price_steps < PO_PRICE_PUBLISH)
		return 0;
	p->price_steps = 0;
	fr_measure_price_publish(p->measure);
	p->generation++;
	return 0;
}

struct po_shape *po_placer_ask(struct po_placer *p, const struct st_request *req,
			       uint64_t decision_no)
{
	struct po_shape *s;

	if (po_placer_sync(p) < 0)
		return NULL;
	s = po_shape_get(p, req);
	if (!s || po_shape_refresh(s) < 0)
		return NULL;
	s->decision_no = decision_no;
	return s;
}

static void report_fill(const struct fr_measure *m, struct po_fragmentation *ret)
{
	ret->n = fr_measure_total(m);
	ret->divisor = fr_measure_scale(m);
	ret->idle_milli = fr_measure_idle_total(m);
}

int po_placer_measure(struct po_placer *p, struct po_fragmentation *ret, struct err *err)
{
	if (!p->policy->uses_measure)
		return po_placer_fragmentation(p, ret, err);
	if (po_placer_sync(p) < 0)
		return err_set(err, ERR_NOMEM, "fragmentation: out of memory");
	report_fill(p->measure, ret);
	return 0;
}

int po_placer_fragmentation(struct po_placer *p, struct po_fragmentation *ret, struct err *err)
{
	if (p->policy->uses_measure && p->policy->measure == FR_FGD)
		return po_placer_measure(p, ret, err);
	if (!p->report) {
		p->report = po_placer_measure_build(p, FR_FGD);
		p->report_pos = 0;
	}
	if (!p->report || measure_sync(p, p->report, &p->report_pos) < 0)
		return err_set(err, ERR_NOMEM, "fragmentation: out of memory");
	report_fill(p->report, ret);
	return 0;
}
