/* First step of parsing: what is said about each container of the pod, in annotations and in
 * resources, and the checks that need no more than one key and the list of containers. */
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/quantity.h"
#include "state/contract_parse_internal.h"

const char *const contract_pod_keys[POD_KEY_COUNT] = {
	[POD_FRACTION] = "gpu-fraction",
	[POD_FRACTION_LIMIT] = "gpu-fraction.limit",
	[POD_MEMORY] = "gpu-memory",
	[POD_MEMORY_LIMIT] = "gpu-memory.limit",
	[POD_DEVICES] = "gpu-fraction-num-devices",
	[POD_CONTAINER] = "gpu-fraction-container-name",
	[POD_POLICY] = CONTRACT_TESSERA_DOMAIN "compute-mode-policy",
	[POD_PRODUCT] = CONTRACT_TESSERA_DOMAIN "gpu-product",
	[POD_WORKLOAD] = CONTRACT_TESSERA_DOMAIN "workload-profile",
	[POD_ISOLATION] = CONTRACT_TESSERA_DOMAIN "isolation",
};

static const char *const hami_names[HAMI_COUNT] = {
	[HAMI_MEM] = "nvidia.com/gpumem",
	[HAMI_MEM_PERCENT] = "nvidia.com/gpumem-percentage",
	[HAMI_CORES] = "nvidia.com/gpucores",
};

int contract_bad(struct parse *p, int code, const char *key, const char *value, const char *fmt,
		 ...)
{
	struct contract_shown k, v;
	char text[ERR_MSG_CAP / 2];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return err_set(p->err, code, "%s: \"%s\" %s", contract_show(key, strlen(key), &k),
		       contract_show(value, strlen(value), &v), text);
}

int contract_bad_amount(struct parse *p, int code, const struct slot *s, const struct amount *a,
			const char *text)
{
	struct contract_shown k, v, c;

	return err_set(p->err, code, "container \"%s\": %s: \"%s\" %s",
		       contract_show(s->name, strlen(s->name), &c),
		       contract_show(a->name, strlen(a->name), &k),
		       contract_show(a->text, strlen(a->text), &v), text);
}

void st_warn(struct st_warnings *w, const char *fmt, ...)
{
	char text[ERR_MSG_CAP + 8]; /* more than is kept: err_set() cuts it between characters */
	va_list ap;

	if (w == NULL || w->count == ST_WARNINGS_MAX)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	err_set(&w->text[w->count++], 0, "%s", text);
}

void contract_warn(struct parse *p, const char *key, const char *value, const char *text)
{
	struct contract_shown k, v;

	st_warn(p->warn, "%s: \"%s\" %s", contract_show(key, strlen(key), &k),
		contract_show(value, strlen(value), &v), text);
}

/* A count from resources: the API allows integers only, in any notation. */
static int parse_amount(struct parse *p, const struct slot *s, struct amount *a, int64_t max)
{
	int64_t milli;
	int r = quantity_parse(a->text, QUANTITY_MILLI, &milli, p->err);

	if (r == ERR_INVALID) {
		struct contract_shown c;

		return err_prefix(p->err, r, "container \"%s\": %s",
				  contract_show(s->name, strlen(s->name), &c), a->name);
	}
	if (r != 0 || milli / 1000 > max) {
		char text[48];

		snprintf(text, sizeof(text), "is above %lld", (long long)max);
		return contract_bad_amount(p, ERR_RANGE, s, a, text);
	}
	if (milli % 1000 != 0)
		return contract_bad_amount(p, ERR_INVALID, s, a, "is not an integer");
	a->n = milli / 1000;
	return 0;
}

/* The container's slot, made on first sight; NULL and the error (ERR_RANGE) when there are too many. */
static struct slot *slot_get(struct parse *p, size_t container)
{
	size_t i = 0;

	while (i < p->slot_count && p->slots[i].container < container)
		i++;
	if (i == p->slot_count || p->slots[i].container != container) {
		if (p->slot_count == ST_ITEMS_MAX) {
			err_set(p->err, ERR_RANGE, "more than %d containers ask for a GPU",
				ST_ITEMS_MAX);
			return NULL;
		}
		memmove(&p->slots[i + 1], &p->slots[i], (p->slot_count - i) * sizeof(p->slots[0]));
		p->slots[i] = (struct slot){.container = container,
					    .name = p->pod->containers[container].name};
		p->slot_count++;
	}
	return &p->slots[i];
}

static int collect_container_key(struct parse *p, const struct st_kv *kv,
				 const struct contract_key *k)
{
	struct contract_shown name;
	struct slot *slot;
	size_t container;

	if (k->field < 0) {
		contract_warn(p, kv->key, kv->value, "has no effect: there is no such key");
		return 0;
	}
	/* What only the extender writes is not read here; nor its keys for a long container name. */
	if (contract_fields[k->field].extender_only || memchr(k->ref, '_', k->ref_len) != NULL)
		return 0;
	contract_show(k->ref, k->ref_len, &name);
	if (contract_name_len(kv->key) > CONTRACT_NAME_MAX)
		return contract_bad(
			p, ERR_INVALID, kv->key, kv->value,
			"has a key whose name is longer than %d characters (container names: at "
			"most %d here); use gpu-fraction or gpu-memory with "
			"gpu-fraction-container-name",
			CONTRACT_NAME_MAX,
			contract_container_max(p->opt, (enum contract_field)k->field));
	container = contract_container_find(p->pod, k->ref, k->ref_len);
	if (container == p->pod->container_count)
		return contract_bad(p, ERR_INVALID, kv->key, kv->value,
				    "is for container \"%s\", which the pod does not have",
				    name.text);
	slot = slot_get(p, container);
	if (slot == NULL)
		return ERR_RANGE;
	slot->kv[k->field] = kv;
	return 0;
}

static int collect_annotations(struct parse *p)
{
	for (size_t i = 0; i < p->pod->annotation_count; i++) {
		const struct st_kv *kv = &p->pod->annotations[i];
		struct contract_key k;
		int key = 0, r;

		while (key < POD_KEY_COUNT && strcmp(contract_pod_keys[key], kv->key) != 0)
			key++;
		if (key < POD_KEY_COUNT) {
			p->pod_value[key] = kv->value;
		} else if (contract_key_split(kv->key, p->opt, &k)) {
			r = collect_container_key(p, kv, &k);
			if (r != 0)
				return r;
		} else if (strcmp(kv->key, CONTRACT_ALLOCATION) == 0) {
			p->leftover = true;
		} else if (strncmp(kv->key, CONTRACT_TESSERA_DOMAIN,
				   strlen(CONTRACT_TESSERA_DOMAIN)) == 0) {
			contract_warn(p, kv->key, kv->value, "has no effect: there is no such key");
		}
	}
	return 0;
}

static int collect_resource(struct parse *p, size_t container, const struct st_kv *kv)
{
	struct slot probe = {.name = p->pod->containers[container].name}, *slot;
	struct amount a = {kv->key, kv->value, 0};
	bool whole = strcmp(kv->key, RESOURCE_GPU) == 0;
	bool mig = strncmp(kv->key, RESOURCE_MIG, strlen(RESOURCE_MIG)) == 0;
	int hami = 0, r;

	while (hami < HAMI_COUNT && strcmp(hami_names[hami], kv->key) != 0)
		hami++;
	if (!whole && !mig && hami == HAMI_COUNT)
		return 0;
	if (probe.name == NULL)
		return err_set(p->err, ERR_INVALID, "a container that asks for a GPU has no name");
	if (hami < HAMI_COUNT && (p->opt == NULL || !p->opt->hami)) {
		contract_warn(p, kv->key, kv->value,
			      "has no effect: HAMi's resource names are switched off");
		return 0;
	}
	r = parse_amount(p, &probe, &a,
			 hami == HAMI_COUNT ? ST_GPUS_MAX
			 : hami == HAMI_MEM ? INT32_MAX
					    : 100);
	if (r != 0 || (a.n == 0 && !whole))
		return r;
	slot = slot_get(p, container);
	if (slot == NULL)
		return ERR_RANGE;
	if (mig && slot->mig.name != NULL && strcmp(slot->mig.name, a.name) != 0)
		return contract_bad_amount(p, ERR_INVALID, slot, &a,
					   "beside another MIG profile: one profile a container");
	*(whole ? &slot->whole : mig ? &slot->mig : &slot->hami[hami]) = a;
	return 0;
}

/* The first of these pod-level keys that is there, or -1. */
static int first_given(const struct parse *p, const enum pod_key *keys, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (p->pod_value[keys[i]] != NULL)
			return (int)keys[i];
	}
	return -1;
}

/* Checks the pod-level keys against each other and finds the container they speak of. */
static int collect_target(struct parse *p)
{
	static const enum pod_key shares[] = {POD_FRACTION, POD_MEMORY, POD_FRACTION_LIMIT,
					      POD_MEMORY_LIMIT};
	const char *const *v = p->pod_value;
	struct contract_shown shown;
	struct slot *slot;
	size_t n = p->pod->container_count;
	int r;

	p->target = n;
	if (v[POD_CONTAINER] != NULL) {
		p->target =
			contract_container_find(p->pod, v[POD_CONTAINER], strlen(v[POD_CONTAINER]));
		if (p->target == n)
			return contract_bad(p, ERR_INVALID, contract_pod_keys[POD_CONTAINER],
					    v[POD_CONTAINER], "is not a container of the pod");
	} else {
		for (p->target = 0; p->target < n && p->pod->containers[p->target].init;)
			p->target++;
	}
	if (v[POD_FRACTION] != NULL && v[POD_MEMORY] != NULL)
		return contract_bad(
			p, ERR_INVALID, contract_pod_keys[POD_FRACTION], v[POD_FRACTION],
			"together with gpu-memory: \"%s\"; only one of them can be given",
			contract_show(v[POD_MEMORY], strlen(v[POD_MEMORY]), &shown));
	if (v[POD_FRACTION_LIMIT] != NULL && v[POD_FRACTION] == NULL)
		return contract_bad(p, ERR_INVALID, contract_pod_keys[POD_FRACTION_LIMIT],
				    v[POD_FRACTION_LIMIT], "needs gpu-fraction");
	if (v[POD_MEMORY_LIMIT] != NULL && v[POD_MEMORY] == NULL)
		return contract_bad(p, ERR_INVALID, contract_pod_keys[POD_MEMORY_LIMIT],
				    v[POD_MEMORY_LIMIT], "needs gpu-memory");
	r = first_given(p, shares, 2);
	if (r < 0)
		return 0;
	if (p->target == n || p->pod->containers[p->target].name == NULL)
		return contract_bad(p, ERR_INVALID, contract_pod_keys[r], v[r],
				    "is for no container: the pod has none");
	slot = slot_get(p, p->target);
	if (slot == NULL)
		return ERR_RANGE;
	slot->has_target_keys = true;
	return 0;
}

int contract_collect(struct parse *p)
{
	int r = collect_annotations(p);

	for (size_t i = 0; r == 0 && i < p->pod->container_count; i++) {
		const struct st_container_spec *c = &p->pod->containers[i];

		for (size_t j = 0; r == 0 && j < c->resource_count; j++)
			r = collect_resource(p, i, &c->resources[j]);
	}
	return r == 0 ? collect_target(p) : r;
}
