/* The price search beside the decisions: see policy.h. */
#include <stdlib.h>

#include "policy/policy_internal.h"

#define OLD_MAX 2 /* what one look puts aside */

struct po_pricer {
	struct po_placer *placer;
	struct fr_measure *own;          /* the search's; NULL: to be made */
	struct fr_measure *old[OLD_MAX]; /* to be freed without the lock, before the next look */
	unsigned old_count;
	bool fresh;          /* own has a workload that the placer has not seen yet */
	bool ready;          /* own's prices are to be used */
	uint32_t start_left; /* steps of the search at the start */
	uint32_t steps;      /* since the last publication */
	uint32_t todo;       /* of the next search */
	uint64_t published;  /* times that the measures traded places */
	uint64_t stepped;    /* steps done or given up, as arrivals ask for them */
	/* Which changes own has seen: all before pos; while walking, of nodes before `node` only. */
	uint64_t pos; /* 0 = none */
	uint32_t node;
	bool walking;
};

struct po_pricer *po_pricer_new(struct po_placer *p)
{
	struct po_pricer *s = calloc(1, sizeof(*s));

	if (s)
		s->placer = p;
	return s;
}

static void free_old(struct po_pricer *s)
{
	while (s->old_count > 0)
		fr_measure_free(s->old[--s->old_count]);
}

void po_pricer_free(struct po_pricer *s)
{
	if (!s)
		return;
	fr_measure_free(s->own);
	free_old(s);
	free(s);
}

static void retire(struct po_pricer *s, struct fr_measure *m)
{
	if (m)
		s->old[s->old_count++] = m;
}

/* A measure of its own: for what was learned by now, or a twin of the placer's. ERR_NOMEM. */
static int begin(struct po_pricer *s)
{
	struct po_placer *p = s->placer;
	struct fr_measure *before = s->own ? s->own : p->measure;

	retire(s, s->own);
	s->own = NULL;
	s->fresh = p->outdated || !p->measure;
	s->own = s->fresh ? po_placer_measure_build(p, FR_BID) : fr_measure_twin(p->measure);
	if (!s->own)
		return ERR_NOMEM;
	if (s->fresh) {
		p->outdated = false;
		s->start_left = before && fr_measure_price_carry(s->own, before)
					? PO_PRICE_STEPS_AGAIN
					: PO_PRICE_STEPS_START;
		s->steps = 0;
	}
	s->pos = 0;
	s->walking = false;
	return 0;
}

/* Takes in a slice of the cluster's changes. 1: there is more. ERR_NOMEM. */
static int follow(struct po_pricer *s)
{
	const struct st_cluster *c = s->placer->cluster;
	const uint64_t end = st_cluster_log_end(c);
	int rc = 0;

	if (s->pos == 0 || s->pos < st_cluster_log_begin(c)) {
		s->walking = true;
		s->node = 0;
		s->pos = end;
	}
	for (unsigned n = 0; n < PO_PRICER_NODES && rc == 0; n++) {
		if (s->walking && s->node == st_cluster_node_count(c))
			s->walking = false;
		if (s->walking)
			rc = fr_measure_sync(s->own, s->node++);
		else if (s->pos < end)
			rc = fr_measure_sync(s->own, st_cluster_log_at(c, s->pos++));
		else
			break;
	}
	if (rc < 0) {
		s->pos = 0;
		return rc;
	}
	return s->walking || s->pos < end;
}

/* The measures trade places. */
static void trade(struct po_pricer *s)
{
	struct po_placer *p = s->placer;
	struct fr_measure *m = p->measure;
	uint64_t pos = p->measure_pos;

	p->measure = s->own;
	p->measure_pos = s->pos;
	p->priced = true; /* as it is, also where nobody has asked yet */
	p->generation++;
	s->published++;
	s->own = m;
	s->pos = pos;
	s->ready = false;
	if (s->fresh) { /* that of another workload is of no more use */
		retire(s, m);
		s->own = NULL;
		s->fresh = false;
		retire(s, p->report);
		p->report = NULL;
	} else {
		fr_measure_price_copy(m, p->measure);
	}
}

uint64_t po_pricer_published(const struct po_pricer *s)
{
	return s->published;
}

/* Steps that are due; what has long been overdue is given up, since prices follow the state. */
static uint32_t due(struct po_pricer *s)
{
	uint64_t asked = s->placer->arrivals / PO_PRICE_ARRIVALS;

	if (s->start_left > 0) {
		s->stepped = asked;
		return s->start_left < PO_PRICER_STEPS ? s->start_left : PO_PRICER_STEPS;
	}
	if (asked - s->stepped > PO_PRICE_PUBLISH - s->steps)
		s->stepped = asked - (PO_PRICE_PUBLISH - s->steps);
	return (uint32_t)(asked - s->stepped);
}

static enum po_pricer_todo look(struct po_pricer *s)
{
	struct po_placer *p = s->placer;
	int rc;

	if (!po_placer_has_prices(p))
		return PO_PRICER_IDLE;
	/* A search that was begun is finished first: while little is known, workloads follow fast. */
	if (!s->own || (p->outdated && s->start_left == 0 && !s->ready))
		return begin(s) < 0 ? PO_PRICER_IDLE : PO_PRICER_MORE;
	rc = follow(s);
	if (rc != 0)
		return rc < 0 ? PO_PRICER_IDLE : PO_PRICER_MORE;
	if (s->ready) {
		trade(s);
		return PO_PRICER_MORE;
	}
	if (fr_measure_idle_total(s->own) == 0)
		return PO_PRICER_IDLE; /* nothing is for sale */
	s->todo = due(s);
	return s->todo > 0 ? PO_PRICER_SEARCH : PO_PRICER_IDLE;
}

enum po_pricer_todo po_pricer_look(struct po_pricer *s)
{
	enum po_pricer_todo todo;

	s->todo = 0;
	todo = s->old_count == 0 ? look(s) : PO_PRICER_IDLE;
	return s->old_count > 0 ? PO_PRICER_SEARCH : todo;
}

void po_pricer_search(struct po_pricer *s)
{
	free_old(s);
	if (s->todo == 0)
		return;
	fr_measure_price_steps(s->own, s->todo);
	if (s->start_left > 0) {
		s->start_left -= s->todo;
		s->ready = s->start_left == 0;
	} else {
		s->stepped += s->todo;
		s->steps += s->todo;
		s->ready = s->steps >= PO_PRICE_PUBLISH;
	}
	if (!s->ready)
		return;
	s->steps = 0;
	fr_measure_price_publish(s->own);
}
