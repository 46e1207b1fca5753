/* tessera.dev/container.<c>.memory-limit: the memory limit that a user wishes for a container that runs.
 * It is no part of the allocation, so anybody who may write annotations may write it; the extender makes
 * it the allocation's limit, where it can. */
#include <string.h>

#include "state/contract_parse_internal.h"

/* ---- before the pod is bound: is it right at all? ---- */

int contract_check_wish(struct parse *p, const struct slot *s, const struct st_item *it)
{
	const struct st_kv *wish = s->kv[CONTRACT_WISH];
	int32_t mib;
	int r;

	if (wish == NULL)
		return 0;
	if (it == NULL || it->kind != ST_KIND_SHARE)
		return contract_bad(p, ERR_INVALID, wish->key, wish->value,
				    "is for container \"%s\", which has no share of a GPU",
				    s->name);
	r = contract_parse_bytes(p, wish->key, wish->value, &mib);
	if (r == 0 && mib < it->request_mib)
		return contract_bad(p, ERR_INVALID, wish->key, wish->value,
				    "is below the request of %d MiB", it->request_mib);
	return r;
}

/* ---- afterwards: what would the allocation be? ---- */

struct wishing {
	struct parse p; /* for its errors */
	const struct st_cluster *c;
	const struct st_node *node;
	const struct st_pod *booked; /* NULL: nothing yet */
	struct st_decision d;
	const struct st_kv *raised[ST_ITEMS_MAX]; /* by grant */
	bool changed;
};

static struct st_grant *grant_of(struct st_decision *d, const char *container, size_t len)
{
	for (int i = 0; i < d->grant_count; i++) {
		if (strlen(d->grants[i].container) == len &&
		    memcmp(d->grants[i].container, container, len) == 0)
			return &d->grants[i];
	}
	return NULL;
}

/* Sum of the limits that these grants have on a GPU. */
static int64_t limits_on(const struct st_grant *grants, int count, uint8_t gpu)
{
	int64_t sum = 0;

	for (int i = 0; i < count; i++) {
		for (int k = 0; k < grants[i].count; k++)
			sum += grants[i].kind == ST_KIND_SHARE && grants[i].gpu[k] == gpu
				       ? grants[i].limit_mib
				       : 0;
	}
	return sum;
}

/* Does the GPU have room for the limits as they would be? More than before only. */
static int check_gpu(struct wishing *w, const struct st_kv *wish, uint8_t index, int32_t mib)
{
	const struct st_gpu *g = &w->node->gpus[index];
	int64_t most = (int64_t)g->alloc_mib * st_cluster_config(w->c)->overcommit_permille / 1000;
	int64_t own =
		w->booked != NULL ? limits_on(w->booked->grants, w->booked->grant_count, index) : 0;
	int64_t together = g->limit_mib - own + limits_on(w->d.grants, w->d.grant_count, index);

	if (mib > g->alloc_mib)
		return contract_bad(&w->p, ERR_NO_ROOM, wish->key, wish->value,
				    "is more than the %d MiB that GPU %.64s has", g->alloc_mib,
				    g->uuid);
	if (together > most)
		return contract_bad(&w->p, ERR_NO_ROOM, wish->key, wish->value,
				    "does not fit: the limits on GPU %.64s would be %lld MiB of "
				    "%lld",
				    g->uuid, (long long)together, (long long)most);
	return 0;
}

static int apply_wish(struct wishing *w, const struct st_kv *wish, const struct contract_key *k)
{
	struct st_grant *g = grant_of(&w->d, k->ref, k->ref_len);
	struct contract_shown shown;
	int32_t mib;
	int r;

	if (g == NULL || g->kind != ST_KIND_SHARE)
		return contract_bad(&w->p, ERR_INVALID, wish->key, wish->value,
				    "is for container \"%s\", which has no share of a GPU",
				    contract_show(k->ref, k->ref_len, &shown));
	r = contract_parse_bytes(&w->p, wish->key, wish->value, &mib);
	if (r != 0)
		return r;
	if (mib < g->request_mib)
		return contract_bad(&w->p, ERR_INVALID, wish->key, wish->value,
				    "is below the request of %d MiB", g->request_mib);
	w->changed |= mib != g->limit_mib;
	w->raised[g - w->d.grants] = mib > g->limit_mib ? wish : NULL;
	g->limit_mib = mib;
	return 0;
}

int st_contract_wishes(const struct st_cluster *c, const struct st_pod_spec *pod,
		       const struct st_contract_options *opt, struct st_decision *d,
		       bool *ret_changed, struct err *err)
{
	struct wishing w = {.p = {.pod = pod, .opt = opt, .err = err},
			    .c = c,
			    .node = st_cluster_node(c, d->node),
			    .booked = st_cluster_pod_find(c, pod->uid),
			    .d = *d};
	struct contract_key k;
	int r = 0;

	if (w.booked != NULL && w.booked->node != d->node)
		w.booked = NULL;
	for (size_t i = 0; i < pod->annotation_count && r == 0; i++) {
		const struct st_kv *kv = &pod->annotations[i];

		if (contract_key_split(kv->key, opt, &k) && k.field == CONTRACT_WISH &&
		    contract_find(pod, kv->key) == kv)
			r = apply_wish(&w, kv, &k);
	}
	/* With all of them in place: one container may give what another one gets. */
	for (int i = 0; i < w.d.grant_count && r == 0; i++) {
		const struct st_grant *g = &w.d.grants[i];

		for (int n = 0; n < g->count && w.raised[i] != NULL && r == 0; n++)
			r = check_gpu(&w, w.raised[i], g->gpu[n], g->limit_mib);
	}
	if (r != 0)
		return r;
	*d = w.d;
	*ret_changed = w.changed;
	return 0;
}

bool st_contract_has_wish(const struct st_pod_spec *pod, const struct st_contract_options *opt)
{
	struct contract_key k;

	for (size_t i = 0; i < pod->annotation_count; i++) {
		if (contract_key_split(pod->annotations[i].key, opt, &k) &&
		    k.field == CONTRACT_WISH)
			return true;
	}
	return false;
}
