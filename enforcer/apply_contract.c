/* Reading a pod's allocation with what a node agent knows: the pod's annotations and one container's
 * name. st_contract_decode() does the reading; two things are added here: the node as the core models it,
 * and keys with the short form of a long container name, which only the name itself can explain. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "enforcer/apply_internal.h"
#include "state/cluster.h"
#include "state/contract_internal.h"

#define PAIRS_MAX (ST_ITEMS_MAX * CONTRACT_WRITTEN_COUNT)

const struct st_mig_geometry *apply_geometry(const struct en_node_gpu *g)
{
	return g->has_geometry ? &g->geometry : st_mig_table_find(g->product, g->mem_mib);
}

uint32_t apply_mig_units(const struct en_node_gpu *g, const char *profile, unsigned start)
{
	const struct st_mig_geometry *geometry = apply_geometry(g);
	int p = geometry != NULL ? st_mig_profile_find(geometry, profile) : -1;

	if (p < 0 || start >= ST_MIG_UNITS_MAX)
		return 0;
	return (uint32_t)(((UINT64_C(1) << geometry->profiles[p].units) - 1) << start);
}

/* ---- the node as the core models it ---- */

static int cluster_make(const struct en_node *node, struct st_cluster **ret, uint32_t *ret_id,
			struct err *err)
{
	struct st_gpu_spec *gpus = calloc(ST_GPUS_MAX, sizeof(*gpus));
	struct st_cluster *c = st_cluster_new(NULL);
	struct st_node_spec spec = {
		.name = node->name, .from_inventory = true, .gpu_count = node->gpu_count};
	int r;

	if (gpus == NULL || c == NULL || node->gpu_count > ST_GPUS_MAX) {
		free(gpus);
		st_cluster_free(c);
		return node->gpu_count > ST_GPUS_MAX
			       ? err_set(err, ERR_INVALID, "node %s: %zu GPUs, at most %d",
					 node->name, node->gpu_count, ST_GPUS_MAX)
			       : err_set(err, ERR_NOMEM, "node: no memory");
	}
	for (size_t i = 0; i < node->gpu_count; i++) {
		const struct en_node_gpu *g = &node->gpus[i];
		const struct st_mig_geometry *geometry =
			g->mig_enabled || g->mig_switchable ? apply_geometry(g) : NULL;

		gpus[i].uuid = g->uuid;
		gpus[i].mem_mib = g->mem_mib;
		gpus[i].mig_enabled = g->mig_enabled;
		gpus[i].mig_switchable = g->mig_switchable;
		gpus[i].has_geometry = geometry != NULL;
		if (geometry != NULL)
			gpus[i].geometry = *geometry;
	}
	spec.gpus = gpus;
	r = st_cluster_node_put(c, &spec, ret_id, err);
	free(gpus);
	if (r == 0)
		*ret = c;
	else
		st_cluster_free(c);
	return r;
}

/* ---- long container names ---- */

/* One entry of the list in tessera.dev/allocation: "<ref>=<letters>". */
struct entry {
	char ref[ST_CONTAINER_CAP];   /* as written */
	char alias[ST_CONTAINER_CAP]; /* what it is read as */
	unsigned fields;
};

/* The allocation with keys that need no container name to be read. */
struct renamed {
	size_t entry_count;
	struct entry entries[ST_ITEMS_MAX];
	size_t pair_count;
	struct st_kv pairs[PAIRS_MAX + 1]; /* values are the pod's; the last is the allocation */
	char keys[PAIRS_MAX][CONTRACT_KEY_CAP];
	char allocation[CONTRACT_KEY_CAP + ST_ITEMS_MAX * ST_CONTAINER_CAP * 2];
};

static bool fields_read(const char *letters, size_t len, unsigned *ret)
{
	*ret = 0;
	for (size_t i = 0; i < len; i++) {
		int f = 0;

		while (f < CONTRACT_WRITTEN_COUNT && contract_fields[f].letter != letters[i])
			f++;
		if (f == CONTRACT_WRITTEN_COUNT)
			return false;
		*ret |= 1U << f;
	}
	return true;
}

/* false: the list is not as it is written; the decoder will say so. */
static bool entries_read(const char *list, struct renamed *r)
{
	while (*list != '\0') {
		struct entry *e = &r->entries[r->entry_count];
		size_t len = strcspn(list, ","), name = strcspn(list, "=,");

		if (r->entry_count == ST_ITEMS_MAX || name == 0 || name >= len ||
		    name >= ST_CONTAINER_CAP ||
		    !fields_read(list + name + 1, len - name - 1, &e->fields))
			return false;
		memcpy(e->ref, list, name);
		e->ref[name] = '\0';
		memcpy(e->alias, e->ref, name + 1);
		if (strchr(e->ref, '_') != NULL)
			snprintf(e->alias, sizeof(e->alias), "long-name-%zu", r->entry_count);
		r->entry_count++;
		list += len + (list[len] == ',');
	}
	return true;
}

/* Are the digest and all keys right under their own names? */
static bool digest_right(const struct st_pod_spec *pod, const struct st_contract_options *opt,
			 const char *node, const char *list, const char *digest,
			 const struct renamed *r)
{
	struct st_kv pairs[PAIRS_MAX];
	char key[CONTRACT_KEY_CAP], want[CONTRACT_DIGEST_LEN + 1];
	size_t count = 0;

	for (size_t i = 0; i < r->entry_count; i++) {
		for (int f = 0; f < CONTRACT_WRITTEN_COUNT; f++) {
			const struct st_kv *kv;

			if ((r->entries[i].fields & (1U << f)) == 0)
				continue;
			if (contract_key_format(opt, (enum contract_field)f, r->entries[i].ref, key,
						NULL) != 0)
				return false;
			kv = contract_find(pod, key);
			if (kv == NULL)
				return false;
			pairs[count++] = *kv;
		}
	}
	contract_digest(node, list, strlen(list), pairs, count, want);
	return strncmp(digest, want, CONTRACT_DIGEST_LEN) == 0;
}

static bool pairs_rename(const struct st_pod_spec *pod, const struct st_contract_options *opt,
			 struct renamed *r, struct buf *list)
{
	char key[CONTRACT_KEY_CAP];

	for (size_t i = 0; i < r->entry_count; i++) {
		const struct entry *e = &r->entries[i];

		buf_printf(list, "%s%s=", i > 0 ? "," : "", e->alias);
		for (int f = 0; f < CONTRACT_WRITTEN_COUNT; f++) {
			const struct st_kv *kv;

			if ((e->fields & (1U << f)) == 0)
				continue;
			if (contract_key_format(opt, (enum contract_field)f, e->ref, key, NULL) !=
				    0 ||
			    contract_key_format(opt, (enum contract_field)f, e->alias,
						r->keys[r->pair_count], NULL) != 0)
				return false;
			kv = contract_find(pod, key);
			if (kv == NULL)
				return false;
			r->pairs[r->pair_count] = (struct st_kv){r->keys[r->pair_count], kv->value};
			r->pair_count++;
			buf_putc(list, contract_fields[f].letter);
		}
	}
	return buf_str(list) != NULL;
}

/* Makes *ret where the allocation has short forms in it and is right in form and digest. A false one is
 * left to the decoder, whose message is the one to show. ERR_NOMEM. */
static int rename_long(const struct st_pod_spec *pod, const struct st_contract_options *opt,
		       const char *node, struct renamed **ret, struct err *err)
{
	const struct st_kv *kv = contract_find(pod, CONTRACT_ALLOCATION);
	char head[CONTRACT_KEY_CAP], digest[CONTRACT_DIGEST_LEN + 1];
	const char *list = kv != NULL ? strrchr(kv->value, ';') : NULL;
	struct buf b = BUF_INIT;
	struct renamed *r;
	size_t head_len;
	bool ok;
	int rc = 0;

	*ret = NULL;
	if (list == NULL || strchr(++list, '_') == NULL)
		return 0;
	head_len = (size_t)snprintf(head, sizeof(head), CONTRACT_VERSION ";%s;", node);
	if (head_len >= sizeof(head) || strncmp(kv->value, head, head_len) != 0 ||
	    list - kv->value != (ptrdiff_t)(head_len + CONTRACT_DIGEST_LEN + 1))
		return 0;
	r = calloc(1, sizeof(*r));
	if (r == NULL)
		return err_set(err, ERR_NOMEM, "allocation: no memory");
	ok = entries_read(list, r) && digest_right(pod, opt, node, list, kv->value + head_len, r) &&
	     pairs_rename(pod, opt, r, &b);
	if (ok) {
		struct st_kv sorted[PAIRS_MAX];

		memcpy(sorted, r->pairs, r->pair_count * sizeof(sorted[0]));
		contract_digest(node, buf_str(&b), b.len, sorted, r->pair_count, digest);
		ok = (size_t)snprintf(r->allocation, sizeof(r->allocation), "%s%s;%s", head, digest,
				      buf_str(&b)) < sizeof(r->allocation);
		r->pairs[r->pair_count++] = (struct st_kv){CONTRACT_ALLOCATION, r->allocation};
	}
	if (!buf_ok(&b))
		rc = err_set(err, ERR_NOMEM, "allocation: no memory");
	if (rc == 0 && ok)
		*ret = r;
	else
		free(r);
	buf_fini(&b);
	return rc;
}

/* ---- the pod ---- */

/* The grant of the container: by its name, or by the short form of it. */
static int own_grant(const struct st_decision *d, const char *container,
		     const struct st_contract_options *opt, const struct renamed *r)
{
	char ref[ST_CONTAINER_CAP];

	for (int i = 0; i < d->grant_count && i < ST_ITEMS_MAX; i++) {
		if (r == NULL || strcmp(r->entries[i].ref, r->entries[i].alias) == 0) {
			if (strcmp(d->grants[i].container, container) == 0)
				return i;
			continue;
		}
		contract_ref(opt, container, r->entries[i].fields, ref);
		if (strcmp(ref, r->entries[i].ref) == 0)
			return i;
	}
	return -1;
}

int apply_read(const struct en_node *node, const struct st_pod_spec *pod, const char *container,
	       const struct en_apply_options *opt, enum apply_found *ret_found,
	       struct st_decision *ret, int *ret_own, struct err *why)
{
	struct st_pod_spec bare = {.uid = pod->uid,
				   .ns = pod->ns,
				   .name = pod->name,
				   .annotation_count = pod->annotation_count,
				   .annotations = pod->annotations};
	enum st_allocation_kind kind = ST_ALLOCATION_NONE;
	struct st_cluster *c = NULL;
	struct renamed *renamed = NULL;
	struct st_decision d;
	uint32_t id = 0;
	int r;

	*ret_found = APPLY_NONE;
	*ret_own = -1;
	if (contract_find(pod, CONTRACT_ALLOCATION) == NULL)
		return 0;
	r = cluster_make(node, &c, &id, why);
	if (r == 0)
		r = rename_long(pod, &opt->contract, node->name, &renamed, why);
	if (r == 0 && renamed != NULL) {
		bare.annotation_count = renamed->pair_count;
		bare.annotations = renamed->pairs;
	}
	if (r == 0) {
		r = st_contract_decode(c, &bare, id, &opt->contract, &kind, &d, why);
		*ret_found = r == 0 ? APPLY_READ : APPLY_WRONG;
		r = r == ERR_NOMEM ? r : 0;
	}
	if (r == 0 && *ret_found == APPLY_READ) {
		*ret = d;
		*ret_own = own_grant(&d, container, &opt->contract, renamed);
	}
	free(renamed);
	st_cluster_free(c);
	return r;
}

const char *apply_asks(const struct st_pod_spec *pod, const struct en_apply_options *opt)
{
	for (size_t i = 0; i < pod->annotation_count; i++) {
		const char *key = pod->annotations[i].key;
		struct contract_key k;

		if (strcmp(key, "gpu-fraction") == 0 || strcmp(key, "gpu-memory") == 0)
			return key;
		if (contract_key_split(key, &opt->contract, &k) && k.field >= 0 &&
		    k.field != CONTRACT_MODE)
			return key;
	}
	return NULL;
}
