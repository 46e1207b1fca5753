#include "test/model/small_mig.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LAYOUTS_MAX 400
#define KINDS_MAX 64

/* Layouts that allow the same, now and after whatever may be added, are of one kind. */
struct kinds {
	const struct st_mig_geometry *g;
	const int *profiles;
	int layouts, count;
	uint64_t placed[LAYOUTS_MAX];
	int of[LAYOUTS_MAX];
	uint64_t next[KINDS_MAX][SM_PROFILES]; /* a bit for each kind that one more may lead to */
};

struct sm_graph {
	int count, cap, edges, edges_cap;
	int units[SM_PROFILES], units_all;
	int *key;   /* of each state: the GPUs' kinds in ascending order, base KINDS_MAX */
	int *at;    /* [key]: the state, -1 = not found yet */
	int *first; /* [state * SM_PROFILES + profile]: into `next`; the one behind it is the end */
	int *next;
};

static void *must(void *p)
{
	cr_assert_not_null(p, "out of memory");
	return p;
}

/* ---- kinds ---- */

/* The kind of a layout, after those of all that it leads to. */
static int kind_of(struct kinds *k, uint64_t placed)
{
	uint64_t next[SM_PROFILES] = {0};
	int i = 0;

	while (i < k->layouts && k->placed[i] != placed)
		i++;
	if (i < k->layouts)
		return k->of[i];
	for (int p = 0; p < SM_PROFILES; p++) {
		const struct st_mig_profile *q = &k->g->profiles[k->profiles[p]];

		for (int s = 0; s < q->start_count; s++)
			if (st_mig_can_place(k->g, placed, k->profiles[p], q->starts[s]))
				next[p] |= UINT64_C(1)
					   << kind_of(k, placed | UINT64_C(1) << (q->bit + s));
	}
	for (i = 0; i < k->count && memcmp(k->next[i], next, sizeof(next)) != 0;)
		i++;
	if (i == k->count) {
		cr_assert_lt(k->count, KINDS_MAX);
		memcpy(k->next[k->count++], next, sizeof(next));
	}
	cr_assert_lt(k->layouts, LAYOUTS_MAX);
	k->placed[k->layouts] = placed;
	k->of[k->layouts++] = i;
	return i;
}

/* ---- the graph ---- */

static int state_of(struct sm_graph *s, int kind[SM_GPUS])
{
	int key = 0;

	for (int i = 1; i < SM_GPUS; i++)
		for (int j = i; j > 0 && kind[j] < kind[j - 1]; j--) {
			int t = kind[j];

			kind[j] = kind[j - 1];
			kind[j - 1] = t;
		}
	for (int i = 0; i < SM_GPUS; i++)
		key = key * KINDS_MAX + kind[i];
	if (s->at[key] < 0) {
		if (s->count == s->cap) {
			s->cap = s->cap ? 2 * s->cap : 256;
			s->key = must(realloc(s->key, (size_t)s->cap * sizeof(*s->key)));
			s->first = must(realloc(s->first, ((size_t)s->cap * SM_PROFILES + 1) *
								  sizeof(*s->first)));
		}
		s->key[s->count] = key;
		s->at[key] = s->count++;
	}
	return s->at[key];
}

static void edge_add(struct sm_graph *s, int first, int to)
{
	for (int e = first; e < s->edges; e++)
		if (s->next[e] == to)
			return;
	if (s->edges == s->edges_cap) {
		s->edges_cap = s->edges_cap ? 2 * s->edges_cap : 1024;
		s->next = must(realloc(s->next, (size_t)s->edges_cap * sizeof(*s->next)));
	}
	s->next[s->edges++] = to;
}

/* Where one more of profile p leads from a state. */
static void edges_from(struct sm_graph *s, const struct kinds *k, int state, int p)
{
	int first = s->edges;

	for (int i = 0, rest = s->key[state]; i < SM_GPUS; i++, rest /= KINDS_MAX) {
		uint64_t left = k->next[rest % KINDS_MAX][p];

		for (; left != 0; left &= left - 1) {
			int kind[SM_GPUS], key = s->key[state];

			for (int j = 0; j < SM_GPUS; j++, key /= KINDS_MAX)
				kind[j] = j == i ? __builtin_ctzll(left) : key % KINDS_MAX;
			edge_add(s, first, state_of(s, kind));
		}
	}
}

struct sm_graph *sm_graph_new(const struct st_mig_geometry *g, const int profiles[SM_PROFILES],
			      int gpus)
{
	struct sm_graph *s = must(calloc(1, sizeof(*s)));
	struct kinds *k = must(calloc(1, sizeof(*k)));
	int start[SM_GPUS], keys = 1, empty, none = -1;

	*k = (struct kinds){.g = g, .profiles = profiles};
	s->units_all = gpus * g->units_total;
	for (int p = 0; p < SM_PROFILES; p++)
		s->units[p] = g->profiles[profiles[p]].units;
	empty = kind_of(k, 0);
	for (int i = 0; i < k->count; i++)
		if (!(k->next[i][0] | k->next[i][1] | k->next[i][2] | k->next[i][3] |
		      k->next[i][4]))
			none = i; /* nothing fits: a GPU that is not there */
	for (int i = 0; i < SM_GPUS; i++) {
		start[i] = i < gpus ? empty : none;
		keys *= KINDS_MAX;
	}
	s->at = must(malloc((size_t)keys * sizeof(*s->at)));
	memset(s->at, 0xff, (size_t)keys * sizeof(*s->at));
	state_of(s, start); /* state 0 */
	for (int i = 0; i < s->count; i++)
		for (int p = 0; p < SM_PROFILES; p++) {
			s->first[i * SM_PROFILES + p] = s->edges;
			edges_from(s, k, i, p);
			s->first[i * SM_PROFILES + p + 1] = s->edges;
		}
	free(k);
	return s;
}

void sm_graph_free(struct sm_graph *s)
{
	free(s->key);
	free(s->at);
	free(s->first);
	free(s->next);
	free(s);
}

/* ---- who knows all ---- */

/* Into `to` and `list` what the request makes of the best sums that lead to each state. */
static int forward(const struct sm_graph *s, int p, int worth, int *from, int *to,
		   const int *from_list, int from_count, int *list)
{
	int count = 0;

	for (int i = 0; i < from_count; i++) {
		int state = from_list[i], sum = from[state];
		const int *first = &s->first[state * SM_PROFILES + p];
		bool fits = first[0] < first[1];

		for (int e = first[0]; e < first[1] + !fits; e++) {
			int next = fits ? s->next[e] : state;

			if (to[next] < 0)
				list[count++] = next;
			if (sum + (fits ? worth : 0) > to[next])
				to[next] = sum + (fits ? worth : 0);
		}
	}
	for (int i = 0; i < from_count; i++)
		from[from_list[i]] = -1;
	return count;
}

int sm_foreseen(const struct sm_graph *s, const int *requests, int count, const int *worth)
{
	size_t size = (size_t)s->count * sizeof(int);
	int *sum[2], *list[2], n = 1, best = 0;

	for (int i = 0; i < 2; i++) {
		sum[i] = must(malloc(size));
		list[i] = must(malloc(size));
		memset(sum[i], 0xff, size);
	}
	sum[0][0] = list[0][0] = 0;
	for (int i = 0; i < count; i++)
		n = forward(s, requests[i], worth[requests[i]], sum[i % 2], sum[(i + 1) % 2],
			    list[i % 2], n, list[(i + 1) % 2]);
	for (int i = 0; i < n; i++)
		if (sum[count % 2][list[count % 2][i]] > best)
			best = sum[count % 2][list[count % 2][i]];
	for (int i = 0; i < 2; i++) {
		free(sum[i]);
		free(list[i]);
	}
	return best;
}

/* ---- who knows the mix ---- */

struct sm_online {
	const struct sm_graph *s;
	struct sm_mix mix;
	int worth[SM_PROFILES];
	int64_t total;
	double *mean; /* [(left * (units + 1) + room) * states + state]; NAN = not known yet */
};

struct sm_online *sm_online_new(const struct sm_graph *s, const struct sm_mix *mix,
				const int *worth)
{
	struct sm_online *o = must(calloc(1, sizeof(*o)));
	size_t size = (size_t)(mix->most + 1) * (size_t)(s->units_all + 1) * (size_t)s->count;

	o->s = s;
	o->mix = *mix;
	for (int p = 0; p < SM_PROFILES; p++) {
		o->worth[p] = worth[p];
		o->total += mix->weight[p];
	}
	o->mean = must(malloc(size * sizeof(*o->mean)));
	for (size_t i = 0; i < size; i++)
		o->mean[i] = NAN;
	return o;
}

void sm_online_free(struct sm_online *o)
{
	free(o->mean);
	free(o);
}

static double mean_of(struct sm_online *o, int left, int room, int state);

/* The state that the best choice leads to for a request, and what is placed by then on in the mean. */
static int choose(struct sm_online *o, int left, int room, int state, int p, double *ret)
{
	const int *first = &o->s->first[state * SM_PROFILES + p];
	int best = state;

	room -= o->mix.capacity ? o->s->units[p] : 0;
	*ret = first[0] < first[1] ? -1 : mean_of(o, left - 1, room, state);
	for (int e = first[0]; e < first[1]; e++) {
		double v = o->worth[p] + mean_of(o, left - 1, room, o->s->next[e]);

		if (v > *ret) {
			*ret = v;
			best = o->s->next[e];
		}
	}
	return best;
}

static double mean_of(struct sm_online *o, int left, int room, int state)
{
	double *mean = &o->mean[((size_t)left * (size_t)(o->s->units_all + 1) + (size_t)room) *
					(size_t)o->s->count +
				(size_t)state];
	double sum = 0, v;

	if (!isnan(*mean))
		return *mean;
	for (int p = 0; left > 0 && p < SM_PROFILES; p++) {
		if (o->mix.weight[p] == 0 || (o->mix.capacity && o->s->units[p] > room))
			continue;
		choose(o, left, room, state, p, &v);
		sum += (double)o->mix.weight[p] * v;
	}
	return *mean = sum / (double)o->total;
}

double sm_online_expected(struct sm_online *o)
{
	return mean_of(o, o->mix.most, o->s->units_all, 0);
}

void sm_online_play(struct sm_online *o, const int *requests, int count,
		    int ret_placed[SM_PROFILES])
{
	int state = 0, room = o->s->units_all;

	memset(ret_placed, 0, SM_PROFILES * sizeof(*ret_placed));
	for (int i = 0; i < count; i++) {
		int p = requests[i];
		const int *first = &o->s->first[state * SM_PROFILES + p];
		double mean;

		ret_placed[p] += first[0] < first[1];
		state = choose(o, o->mix.most - i, room, state, p, &mean);
		room -= o->mix.capacity ? o->s->units[p] : 0;
	}
}
