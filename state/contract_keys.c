/* Names of the keys, and what is common to reading and writing them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arith.h"
#include "base/hash.h"
#include "base/quantity.h"
#include "state/contract_internal.h"

const struct contract_field_info contract_fields[CONTRACT_FIELD_COUNT] = {
	[CONTRACT_DEVICES] = {".gpus.devices", 'd', false, true},
	[CONTRACT_MEM_REQUEST] = {".gpu-memory.request", 'r', false, false},
	[CONTRACT_MEM_LIMIT] = {".gpu-memory.limit", 'l', false, false},
	[CONTRACT_MODE] = {".gpu-compute.mode", 'm', false, false},
	[CONTRACT_PORTION] = {".gpu-compute.portion", 'p', false, true},
	[CONTRACT_PLACEMENT] = {".mig-placement", 'g', true, true},
	[CONTRACT_COMPUTE_REQUEST] = {".gpu-compute.request", 0, false, false},
	[CONTRACT_MIG_PROFILE] = {".mig-profile", 0, true, false},
	[CONTRACT_MIG_MEMORY] = {".mig-memory", 0, true, false},
	[CONTRACT_WISH] = {".memory-limit", 0, true, false},
};

static const char *prefix_of(const struct st_contract_options *opt, bool ours)
{
	if (ours)
		return CONTRACT_TESSERA_PREFIX;
	return opt != NULL && opt->prefix != NULL ? opt->prefix : CONTRACT_PREFIX;
}

/* Lower case letters, digits and '-' in parts joined by '.', each ending in no '-'. */
static bool is_domain(const char *text, size_t len)
{
	static const char inner[] = "abcdefghijklmnopqrstuvwxyz0123456789-";

	for (size_t i = 0, part = 0; i <= len; i++) {
		if (i < len && text[i] != '.') {
			if (strchr(inner, text[i]) == NULL)
				return false;
			continue;
		}
		if (i == part || text[part] == '-' || text[i - 1] == '-')
			return false;
		part = i + 1;
	}
	return len <= 253;
}

int st_contract_prefix_check(const char *prefix, struct err *err)
{
	static const char letters[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
	const char *slash = strchr(prefix, '/'), *name = slash != NULL ? slash + 1 : "";
	const struct st_contract_options opt = {.prefix = prefix};

	if (slash == NULL || !is_domain(prefix, (size_t)(slash - prefix)))
		return err_set(err, ERR_INVALID,
			       "\"%s\" is no start of an annotation key, as example.com/container.",
			       prefix);
	for (const char *p = name; *p != '\0'; p++) {
		if (strchr(letters, *p) == NULL && (p == name || strchr("-_.", *p) == NULL))
			return err_set(err, ERR_INVALID,
				       "\"%s\": '%c' cannot be there in an annotation key", prefix,
				       *p);
	}
	if (strncmp(prefix, CONTRACT_TESSERA_DOMAIN, strlen(CONTRACT_TESSERA_DOMAIN)) == 0)
		return err_set(err, ERR_INVALID, "\"%s\": that domain has keys of its own", prefix);
	for (int f = 0; f < CONTRACT_FIELD_COUNT; f++) {
		if (contract_container_max(&opt, (enum contract_field)f) < CONTRACT_REF_HASHED)
			return err_set(err, ERR_INVALID,
				       "\"%s\" is too long: %d characters behind the '/' leave no "
				       "room for a container's name",
				       prefix, (int)strlen(name));
	}
	return 0;
}

bool contract_key_split(const char *key, const struct st_contract_options *opt,
			struct contract_key *ret)
{
	bool matched = false;

	for (int ours = 0; ours < 2; ours++) {
		const char *prefix = prefix_of(opt, ours != 0), *ref, *suffix;
		size_t len = strlen(prefix);

		if (strncmp(key, prefix, len) != 0)
			continue;
		ref = key + len;
		suffix = strchr(ref, '.');
		if (suffix == NULL)
			suffix = ref + strlen(ref);
		*ret = (struct contract_key){ref, (size_t)(suffix - ref), -1};
		for (int f = 0; f < CONTRACT_FIELD_COUNT; f++) {
			if (contract_fields[f].ours == (ours != 0) &&
			    strcmp(contract_fields[f].suffix, suffix) == 0) {
				ret->field = f;
				return true;
			}
		}
		matched = true;
	}
	return matched;
}

size_t contract_name_len(const char *key)
{
	const char *slash = strchr(key, '/');

	return strlen(slash != NULL ? slash + 1 : key);
}

int contract_key_format(const struct st_contract_options *opt, enum contract_field field,
			const char *ref, char buf[CONTRACT_KEY_CAP], struct err *err)
{
	const struct contract_field_info *f = &contract_fields[field];
	struct contract_shown shown;
	int n = snprintf(buf, CONTRACT_KEY_CAP, "%s%s%s", prefix_of(opt, f->ours), ref, f->suffix);

	if (n < 0 || n >= CONTRACT_KEY_CAP || contract_name_len(buf) > CONTRACT_NAME_MAX)
		return err_set(err, ERR_TOO_LARGE,
			       "key for %s of container \"%s\": its name part is longer than %d",
			       f->suffix + 1, contract_show(ref, strlen(ref), &shown),
			       CONTRACT_NAME_MAX);
	return 0;
}

int contract_container_max(const struct st_contract_options *opt, enum contract_field field)
{
	const struct contract_field_info *f = &contract_fields[field];

	return CONTRACT_NAME_MAX - (int)contract_name_len(prefix_of(opt, f->ours)) -
	       (int)strlen(f->suffix);
}

void contract_ref(const struct st_contract_options *opt, const char *container, unsigned fields,
		  char ref[ST_CONTAINER_CAP])
{
	size_t len = strlen(container);
	bool fits = len < ST_CONTAINER_CAP;

	for (int f = 0; f < CONTRACT_WRITTEN_COUNT; f++) {
		if ((fields & (1U << f)) != 0 &&
		    (int)len > contract_container_max(opt, (enum contract_field)f))
			fits = false;
	}
	if (fits)
		memcpy(ref, container, len + 1);
	else
		snprintf(ref, ST_CONTAINER_CAP, "%.16s_%012llx", container,
			 (unsigned long long)(hash_str(container, 0) & 0xffffffffffffULL));
}

const struct st_kv *contract_find(const struct st_pod_spec *pod, const char *key)
{
	for (size_t i = pod->annotation_count; i > 0; i--) {
		if (strcmp(pod->annotations[i - 1].key, key) == 0)
			return &pod->annotations[i - 1];
	}
	return NULL;
}

size_t contract_container_find(const struct st_pod_spec *pod, const char *name, size_t len)
{
	for (size_t i = 0; i < pod->container_count; i++) {
		const char *have = pod->containers[i].name;

		if (have != NULL && strlen(have) == len && memcmp(have, name, len) == 0)
			return i;
	}
	return pod->container_count;
}

/* Takes in a piece with its length before it, so that moving a byte from one piece to the next
 * gives another digest. Each step is a bijection of h: a change of one byte is always seen. */
static uint64_t digest_piece(uint64_t h, const char *piece, size_t len)
{
	unsigned char size[8];

	for (size_t i = 0; i < sizeof(size); i++)
		size[i] = (unsigned char)((uint64_t)len >> (8 * i));
	return hash_bytes(piece, len, hash_bytes(size, sizeof(size), h));
}

void contract_digest(const char *node, const char *list, size_t list_len, struct st_kv *kv,
		     size_t count, char digest[CONTRACT_DIGEST_LEN + 1])
{
	uint64_t h = digest_piece(0, CONTRACT_VERSION, strlen(CONTRACT_VERSION));

	for (size_t i = 1; i < count; i++) { /* a few dozen pairs, nearly in order */
		struct st_kv x = kv[i];
		size_t j = i;

		for (; j > 0 && strcmp(kv[j - 1].key, x.key) > 0; j--)
			kv[j] = kv[j - 1];
		kv[j] = x;
	}
	h = digest_piece(h, node, strlen(node));
	h = digest_piece(h, list, list_len);
	for (size_t i = 0; i < count; i++) {
		h = digest_piece(h, kv[i].key, strlen(kv[i].key));
		h = digest_piece(h, kv[i].value, strlen(kv[i].value));
	}
	snprintf(digest, CONTRACT_DIGEST_LEN + 1, "%016llx", (unsigned long long)h);
}

static size_t number_len(const char *s, size_t len)
{
	size_t n = 0;

	while (n < len && s[n] >= '0' && s[n] <= '9')
		n++;
	return n > 0 && n <= 4 && s[0] != '0' ? n : 0;
}

bool contract_profile_valid(const char *name, size_t len)
{
	size_t n, i;

	if (len >= ST_MIG_NAME_CAP || (n = number_len(name, len)) == 0)
		return false;
	if (len - n < 2 || memcmp(name + n, "g.", 2) != 0)
		return false;
	i = n + 2;
	if ((n = number_len(name + i, len - i)) == 0 || len - i - n < 2 ||
	    memcmp(name + i + n, "gb", 2) != 0)
		return false;
	i += n + 2;
	if (i == len)
		return true;
	if ((name[i] != '+' && name[i] != '-') || i + 1 == len || name[len - 1] == '.')
		return false;
	for (i++; i < len; i++) {
		if ((name[i] < 'a' || name[i] > 'z') && (name[i] != '.' || name[i - 1] < 'a'))
			return false;
	}
	return true;
}

const char *contract_show(const char *s, size_t len, struct contract_shown *buf)
{
	size_t max = sizeof(buf->text) - 4, i;

	for (i = 0; i < max && i < len; i++)
		buf->text[i] = s[i] >= ' ' && s[i] <= '~' ? s[i] : '?';
	memcpy(buf->text + i, i < len ? "..." : "", i < len ? 4 : 1);
	return buf->text;
}

bool st_contract_is_allocation_key(const char *key, const struct st_contract_options *opt)
{
	struct contract_key k;

	if (strcmp(key, CONTRACT_ALLOCATION) == 0)
		return true;
	return contract_key_split(key, opt, &k) && k.field >= 0 &&
	       contract_fields[k.field].extender_only;
}

/* st_kv has const strings, but these are the list's own. */
static void free_text(const char *s)
{
	char *own;

	memcpy(&own, &s, sizeof(own));
	free(own);
}

void st_annotations_fini(struct st_annotations *a)
{
	for (size_t i = 0; i < a->count; i++) {
		free_text(a->kv[i].key);
		free_text(a->kv[i].value);
	}
	free(a->kv);
	*a = (struct st_annotations){0};
}

static bool replaced(const struct st_annotations *a, const char *key)
{
	for (size_t i = 0; i < a->count; i++) {
		if (strcmp(a->kv[i].key, key) == 0)
			return true;
	}
	return false;
}

int st_contract_check_size(const struct st_pod_spec *pod, const struct st_annotations *a,
			   struct err *err)
{
	size_t total = 0;

	for (size_t i = 0; i < a->count; i++)
		total += strlen(a->kv[i].key) + strlen(a->kv[i].value);
	for (size_t i = 0; i < pod->annotation_count; i++) {
		if (!replaced(a, pod->annotations[i].key))
			total +=
				strlen(pod->annotations[i].key) + strlen(pod->annotations[i].value);
	}
	if (total > CONTRACT_TOTAL_MAX)
		return err_set(err, ERR_TOO_LARGE,
			       "annotations of the pod and its allocation: %zu bytes, at most %d "
			       "are legal",
			       total, CONTRACT_TOTAL_MAX);
	return 0;
}

static int64_t plugin_count(const struct st_container_spec *c)
{
	int64_t n = 0;

	for (size_t i = 0; i < c->resource_count; i++) {
		if (strcmp(c->resources[i].key, "nvidia.com/gpu") == 0 &&
		    quantity_parse(c->resources[i].value, QUANTITY_ONE, &n, NULL) != 0)
			n = 0;
	}
	return n > UINT32_MAX ? UINT32_MAX : n;
}

uint32_t st_contract_plugin_gpus(const struct st_pod_spec *pod)
{
	int64_t regular = 0, sidecars = 0, peak = 0;

	for (size_t i = 0; i < pod->container_count; i++) {
		const struct st_container_spec *c = &pod->containers[i];
		int64_t n = plugin_count(c);

		/* As Kubernetes adds: sidecars stay, other init containers run one at a time. */
		if (c->init && !c->sidecar)
			peak = arith_max(peak, sidecars + n);
		else if (c->init)
			sidecars = arith_min(sidecars + n, UINT32_MAX);
		else
			regular = arith_min(regular + n, UINT32_MAX);
		peak = arith_max(peak, sidecars);
	}
	return (uint32_t)arith_min(arith_max(peak, sidecars + regular), UINT32_MAX);
}
