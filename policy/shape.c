/* One request shape against all nodes: a tournament tree that is brought up to date from the
 * cluster's change log, so that a known shape costs only the nodes that changed. */
#include <stdlib.h>
#include <string.h>

#include "policy/policy_internal.h"

static uint64_t key_pack(int32_t score, uint32_t rank)
{
	return ((uint64_t)((uint32_t)score ^ UINT32_C(0x80000000)) << 32) | (uint32_t)~rank;
}

static int32_t key_score(uint64_t key)
{
	return (int32_t)((uint32_t)(key >> 32) ^ UINT32_C(0x80000000));
}

/* A verdict of which other scores might make another: the search for a choice was cut short. */
static uint64_t key_unsure(enum bp_verdict v)
{
	return (uint64_t)v + BP_VERDICT_COUNT;
}

static bool key_fits(uint64_t key)
{
	return key >= key_unsure(BP_VERDICT_COUNT);
}

/* Is it another one at other prices? */
static bool key_priced(uint64_t key)
{
	return key >= BP_VERDICT_COUNT;
}

static struct bp_chooser chooser_of(const struct po_placer *p, uint64_t decision_no)
{
	uint64_t salt[2] = {p->opt.seed, decision_no};

	return (struct bp_chooser){
		.pick = p->policy->pick,
		.measure = p->measure,
		.salt = p->policy->random ? hash_bytes(salt, sizeof(salt), 1) : 0,
	};
}

/* ---- the tree ---- */

static uint64_t node_key(struct po_shape *s, uint32_t id)
{
	struct po_placer *p = s->placer;
	const struct st_node *n = st_cluster_node(p->cluster, id);
	struct bp_chooser how = chooser_of(p, 0);
	int32_t score = 0;
	enum bp_verdict v = bp_choose(p->cluster, &how, id, &s->req, &p->scratch, &score);

	if (v != BP_OK)
		return score == BP_SCORE_UNSURE ? key_unsure(v) : (uint64_t)v;
	if (p->policy->score)
		score += p->policy->score(p->cluster, n, &s->req);
	return key_pack(score, n->rank);
}

static uint64_t larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* Forgets the leaf where the node has changed since. */
static void leaf_check(struct po_shape *s, uint32_t id)
{
	if (s->versions[id] != st_cluster_node(s->placer->cluster, id)->version)
		s->tree[s->leaves + id] = 0;
}

/* Works a forgotten leaf out; where memory is short it stays forgotten. */
static int leaf_refresh(struct po_shape *s, uint32_t id)
{
	uint64_t key = node_key(s, id);

	if (s->placer->measure && fr_measure_failed(s->placer->measure))
		return ERR_NOMEM;
	s->tree[s->leaves + id] = key;
	s->versions[id] = st_cluster_node(s->placer->cluster, id)->version;
	return 0;
}

/* One node, and its way up the tree. */
static int leaf_update(struct po_shape *s, uint32_t id)
{
	size_t i = s->leaves + id;
	uint64_t old = s->tree[i];

	leaf_check(s, id);
	if (s->tree[i] == 0 && leaf_refresh(s, id) < 0)
		return ERR_NOMEM;
	if (s->tree[i] == old)
		return 0;
	for (i /= 2; i >= 1; i /= 2) {
		uint64_t top = larger(s->tree[2 * i], s->tree[2 * i + 1]);

		if (s->tree[i] == top)
			break;
		s->tree[i] = top;
	}
	return 0;
}

/* All forgotten leaves, and the whole tree, as far as there are nodes. Scores are of another measure, or of other
 * prices, where the generation is another; why a node cannot take the request depends on neither, but where the
 * search for a choice was cut short. */
static int refresh_all(struct po_shape *s)
{
	uint32_t count = st_cluster_node_count(s->placer->cluster);
	bool rescore = s->generation != s->placer->generation;
	const uint64_t *leaf = &s->tree[s->leaves];
	size_t width = count;

	for (uint32_t id = 0; id < count; id++)
		if ((leaf[id] == 0 || (rescore && key_priced(leaf[id]))) && leaf_refresh(s, id) < 0)
			return ERR_NOMEM;
	s->generation = s->placer->generation;
	for (size_t first = s->leaves / 2; first >= 1; first /= 2) {
		width = (width + 1) / 2;
		for (size_t i = first; i < first + width; i++)
			s->tree[i] = larger(s->tree[2 * i], s->tree[2 * i + 1]);
	}
	return 0;
}

static int tree_resize(struct po_shape *s, uint32_t count)
{
	uint32_t leaves = 64;
	uint64_t *tree;
	uint32_t *versions;

	while (leaves < count)
		leaves *= 2;
	tree = calloc(2 * (size_t)leaves, sizeof(*tree));
	versions = calloc(leaves, sizeof(*versions));
	if (!tree || !versions) {
		free(tree);
		free(versions);
		return ERR_NOMEM;
	}
	if (s->tree) {
		memcpy(tree + leaves, s->tree + s->leaves, s->leaves * sizeof(*tree));
		memcpy(versions, s->versions, s->leaves * sizeof(*versions));
	}
	free(s->tree);
	free(s->versions);
	s->tree = tree;
	s->versions = versions;
	s->leaves = leaves;
	return 0;
}

int po_shape_refresh(struct po_shape *s)
{
	const struct st_cluster *c = s->placer->cluster;
	uint64_t end = st_cluster_log_end(c);
	uint32_t count = st_cluster_node_count(c);
	bool lost = s->log_pos < st_cluster_log_begin(c) || end - s->log_pos > count;
	bool all = s->unfinished || lost || s->generation != s->placer->generation;
	int rc = 0;

	if (!s->tree || count > s->leaves) {
		if (tree_resize(s, count) < 0)
			return ERR_NOMEM;
		all = true;
	}
	if (s->placer->measure)
		fr_measure_failed(s->placer->measure);
	if (lost)
		for (uint32_t id = 0; id < count; id++)
			leaf_check(s, id);
	else
		for (uint64_t i = s->log_pos; i < end && rc == 0; i++)
			if (all)
				leaf_check(s, st_cluster_log_at(c, i));
			else
				rc = leaf_update(s, st_cluster_log_at(c, i));
	if (all)
		rc = refresh_all(s);
	s->unfinished = rc < 0;
	if (rc == 0)
		s->log_pos = end;
	return rc;
}

/* ---- finding shapes ---- */

static size_t put(unsigned char *key, size_t at, const void *data, size_t len)
{
	memcpy(key + at, data, len);
	return at + len;
}

static size_t put_str(unsigned char *key, size_t at, const char *s, size_t cap)
{
	size_t len = strnlen(s, cap - 1);

	at = put(key, at, s, len);
	key[at] = 0;
	return at + 1;
}

static size_t shape_key(const struct st_request *req, unsigned char key[PO_KEY_MAX])
{
	size_t at = 0;

	at = put(key, at, &req->cpu_milli, sizeof(req->cpu_milli));
	at = put(key, at, &req->mem_mib, sizeof(req->mem_mib));
	at = put_str(key, at, req->product, sizeof(req->product));
	key[at++] = (unsigned char)req->workload;
	for (unsigned i = 0; i < req->item_count; i++) {
		const struct st_item *it = &req->items[i];
		const int32_t nums[5] = {it->request_mib, it->request_nano, it->limit_mib,
					 it->limit_nano, it->compute_nano};

		key[at++] = (unsigned char)it->kind;
		key[at++] = (unsigned char)it->mode;
		key[at++] = it->mode_preferred;
		key[at++] = it->count;
		at = put(key, at, nums, sizeof(nums));
		at = put_str(key, at, it->profile, sizeof(it->profile));
	}
	return at;
}

void po_shape_free(struct po_shape *s)
{
	free(s->tree);
	free(s->versions);
	free(s->key);
	free(s);
}

static void shape_evict(struct po_placer *p)
{
	struct po_shape *s, *tmp, *oldest = NULL;

	HASH_ITER(hh, p->shapes, s, tmp) {
		if (!oldest || s->tick < oldest->tick)
			oldest = s;
	}
	if (!oldest)
		return;
	HASH_DEL(p->shapes, oldest);
	po_shape_free(oldest);
}

struct po_shape *po_shape_get(struct po_placer *p, const struct st_request *req)
{
	unsigned char key[PO_KEY_MAX];
	size_t len = shape_key(req, key);
	struct po_shape *s;

	HASH_FIND(hh, p->shapes, key, len, s);
	if (s) {
		s->tick = ++p->tick;
		return s;
	}
	if (HASH_COUNT(p->shapes) >= p->opt.shapes_max)
		shape_evict(p);
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->key = malloc(len + 1);
	if (!s->key) {
		po_shape_free(s);
		return NULL;
	}
	memcpy(s->key, key, len);
	s->key_len = len;
	s->placer = p;
	s->req = *req;
	s->generation = p->generation;
	s->tick = ++p->tick;
	/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): it takes the last one for the one evicted */
	HASH_ADD_KEYPTR(hh, p->shapes, s->key, len, s);
	if (!HASH_ADDED(s, hh)) {
		po_shape_free(s);
		return NULL;
	}
	return s;
}

/* ---- answers ---- */

/* A permutation of 32-bit ranks that depends on the seed and the decision: ties stay unique. */
static uint32_t shuffled_rank(const struct po_shape *s, uint32_t rank)
{
	uint64_t in[2] = {s->placer->opt.seed, s->decision_no};
	uint64_t k = hash_bytes(in, sizeof(in), 2);

	rank = (rank ^ (uint32_t)k) * ((uint32_t)(k >> 32) | 1u);
	rank = (rank ^ (rank >> 16)) * UINT32_C(0x7feb352d);
	rank = (rank ^ (rank >> 15)) * UINT32_C(0x846ca68b);
	return rank ^ (rank >> 16);
}

static bool shuffles(const struct po_shape *s)
{
	return s->placer->policy->random || s->placer->opt.ties == PO_TIES_RANDOM;
}

struct po_answer po_shape_node(const struct po_shape *s, uint32_t node)
{
	struct po_answer a = {.verdict = BP_NO_NODE};
	uint64_t key;

	if (node >= st_cluster_node_count(s->placer->cluster))
		return a;
	key = s->tree[s->leaves + node];
	if (!key_fits(key)) {
		a.verdict = (enum bp_verdict)(key % BP_VERDICT_COUNT);
		return a;
	}
	a.verdict = BP_OK;
	a.score = key_score(key);
	a.key = shuffles(s) ? key_pack(a.score, shuffled_rank(s, (uint32_t)~key)) : key;
	return a;
}

uint32_t po_shape_best(const struct po_shape *s)
{
	uint32_t count = st_cluster_node_count(s->placer->cluster), best = ST_NONE;
	uint64_t best_key = 0;
	size_t i = 1;

	if (!key_fits(s->tree[1]))
		return ST_NONE;
	if (!shuffles(s)) {
		while (i < s->leaves)
			i = 2 * i + (s->tree[2 * i] != s->tree[i]);
		return (uint32_t)(i - s->leaves);
	}
	for (uint32_t id = 0; id < count; id++) {
		uint64_t key = s->tree[s->leaves + id];

		if (key < s->tree[1] >> 32 << 32) /* below the best score */
			continue;
		key = po_shape_node(s, id).key;
		if (key <= best_key)
			continue;
		best_key = key;
		best = id;
	}
	return best;
}

enum bp_verdict po_placer_choose(struct po_placer *p, const struct st_request *req, uint32_t node,
				 uint64_t decision_no, struct st_decision *ret)
{
	struct bp_chooser how;

	if (node >= st_cluster_node_count(p->cluster))
		return BP_NO_NODE;
	if (po_placer_sync(p) < 0)
		how = (struct bp_chooser){.pick = BP_PICK_BEST_FIT}; /* placed, if not as well */
	else
		how = chooser_of(p, decision_no);
	return bp_choose(p->cluster, &how, node, req, ret, NULL);
}
