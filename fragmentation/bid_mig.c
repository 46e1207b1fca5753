/* MIG in the bid prices: the layouts of one GPU by what can still be made on them, the most that each
 * could be sold for, and what it would be sold as. */
#include <stdlib.h>
#include <string.h>

#include "base/arith.h"
#include "fragmentation/bid.h"
#include "fragmentation/mig_states.h"

#define EDGES_MAX 64 /* as many (profile, start) pairs as a geometry may have */

/* ---- layouts ---- */

/* What can be made in state s, as (run, layout that it leads to), ascending, each once. */
static uint32_t edges_of(const struct fr_bid_group *g, const struct fr_mig_states *states,
			 const uint16_t *layout, uint32_t s, struct fr_bid_edge *ret)
{
	uint32_t n = 0;

	for (uint32_t run = g->mig_runs; run < g->mig_runs_end; run++) {
		const struct st_mig_profile *p = &g->mig->profiles[g->run_size[run] - 1];
		uint32_t from = n;

		for (int b = p->bit; b < p->bit + p->start_count; b++) {
			uint16_t next = states->next[(size_t)s * 64 + (unsigned)b], to;
			uint32_t at = n, same;

			if (next == FR_MIG_NOWHERE || (states->placed[s] >> b & 1))
				continue;
			to = layout[next];
			for (same = from; same < n && ret[same].to != to; same++)
				;
			if (same < n)
				continue;
			for (; at > from && ret[at - 1].to > to; at--)
				ret[at] = ret[at - 1];
			ret[at] = (struct fr_bid_edge){(uint16_t)run, to};
			n++;
		}
	}
	return n;
}

static int layout_find(struct fr_bid_layouts *l, const struct fr_bid_edge *edges, uint32_t n)
{
	uint32_t size = n * (uint32_t)sizeof(*edges), at = l->begin[l->count];
	struct fr_bid_edge *p;

	for (uint32_t i = 0; i < l->count; i++)
		if (l->begin[i + 1] - l->begin[i] == n &&
		    memcmp(l->edges + l->begin[i], edges, size) == 0)
			return (int)i;
	p = realloc(l->edges, (at + n + 1) * sizeof(*p));
	if (!p)
		return -1;
	l->edges = p;
	memcpy(p + at, edges, size);
	l->begin[l->count + 1] = at + n;
	return (int)l->count++;
}

/* Layouts of the fullest states first: what is made leads to lower ones. */
static int layouts_make(const struct fr_bid_group *g, const struct fr_mig_states *states,
			struct fr_bid_layouts *l)
{
	struct fr_bid_edge edges[EDGES_MAX];

	l->begin = calloc(states->count + 1, sizeof(*l->begin));
	l->layout = calloc(states->count, sizeof(*l->layout));
	if (!l->begin || !l->layout)
		return ERR_NOMEM;
	for (int instances = states->bits; instances >= 0; instances--)
		for (uint32_t s = 0; s < states->count; s++) {
			int i;

			if (__builtin_popcountll(states->placed[s]) != instances)
				continue;
			i = layout_find(l, edges, edges_of(g, states, l->layout, s, edges));
			if (i < 0)
				return ERR_NOMEM;
			l->layout[s] = (uint16_t)i;
		}
	return 0;
}

int fr_bid_layouts_init(struct fr_bid_group *g)
{
	struct fr_mig_states states;
	int rc;

	if (fr_mig_states_make(g->mig, g->mig_open, &states) < 0)
		return ERR_NOMEM;
	rc = states.count > 0 ? layouts_make(g, &states, &g->layouts) : 0;
	if (rc == 0) {
		g->layouts.placed = states.placed;
		g->layouts.states = states.count;
		states.placed = NULL;
	}
	fr_mig_states_fini(&states);
	return rc;
}

void fr_bid_layouts_fini(struct fr_bid_layouts *l)
{
	free(l->placed);
	free(l->layout);
	free(l->begin);
	free(l->edges);
	memset(l, 0, sizeof(*l));
}

int fr_bid_layout(const struct fr_bid_group *g, uint64_t placed)
{
	uint32_t s = fr_mig_state_find(g->layouts.placed, g->layouts.states, placed);

	return s == FR_MIG_NOWHERE ? -1 : g->layouts.layout[s];
}

int fr_bid_layout_tables_init(const struct fr_bid_layouts *l, struct fr_bid_tables *t)
{
	size_t edges = l->count > 0 ? l->begin[l->count] : 0;

	t->mig = calloc(l->count + 1, sizeof(*t->mig));
	t->mig_cpu = calloc(l->count + 1, sizeof(*t->mig_cpu));
	t->mig_share = calloc(edges + 1, sizeof(*t->mig_share));
	t->mig_wanted = calloc(l->count + 1, sizeof(*t->mig_wanted));
	return t->mig && t->mig_cpu && t->mig_share && t->mig_wanted ? 0 : ERR_NOMEM;
}

/* ---- values ---- */

/* At one price: of the edges of each run the one that leaves most; of the runs the soft maximum, weighted
 * by demand. */
static void layout_fill(const struct fr_bid *b, const struct fr_bid_group *g,
			struct fr_bid_tables *t, uint32_t layout, int j)
{
	const struct fr_bid_layouts *l = &g->layouts;
	struct fr_bid_option o[ST_MIG_PROFILES_MAX];
	unsigned n = 0;

	for (uint32_t e = l->begin[layout], end; e < l->begin[layout + 1]; e = end) {
		uint32_t run = l->edges[e].run, best = e;
		int32_t bid = t->bid[(size_t)run * FR_BID_STRIDE + (size_t)j];

		for (end = e; end < l->begin[layout + 1] && l->edges[end].run == run; end++) {
			t->mig_share[end][j] = 0;
			if (t->mig[l->edges[end].to][j] > t->mig[l->edges[best].to][j])
				best = end;
		}
		if (bid <= 0)
			continue;
		bid += t->mig[l->edges[best].to][j];
		o[n++] = (struct fr_bid_option){
			g->run_demand[run], bid < FR_BID_VALUE_MAX ? bid : FR_BID_VALUE_MAX,
			t->mig_cpu[l->edges[best].to][j] +
				t->bid_cpu[(size_t)run * FR_BID_STRIDE + (size_t)j],
			&t->mig_share[best][j]};
	}
	t->mig[layout][j] = fr_bid_soft_options(b, &b->soft_idle, o, n, &t->mig_cpu[layout][j]);
}

void fr_bid_layouts_fill(const struct fr_bid *b, const struct fr_bid_group *g,
			 struct fr_bid_tables *t)
{
	for (uint32_t i = 0; i < g->layouts.count; i++)
		for (int j = 0; j < FR_BID_J; j++)
			layout_fill(b, g, t, i, j);
}
