/* From the annotations of a bound pod to the decision they were written for. Nothing is believed:
 * a value must be exactly what the encoder would have written. */
#include <stdio.h>
#include <string.h>

#include "base/quantity.h"
#include "state/contract_internal.h"

#define PAIRS_MAX (ST_ITEMS_MAX * CONTRACT_WRITTEN_COUNT)

struct decoder {
	const struct st_pod_spec *pod;
	const struct st_node *node;
	const struct st_contract_options *opt;
	struct err *err;
	struct st_kv pairs[PAIRS_MAX]; /* what the digest covers */
	size_t pair_count;
	struct st_decision d;
};

static int wrong(struct decoder *x, const char *key, const char *value, size_t len,
		 const char *reason)
{
	struct contract_shown k, v;

	return err_set(x->err, ERR_INVALID, "%s: \"%s\" %s", contract_show(key, strlen(key), &k),
		       contract_show(value, len, &v), reason);
}

static int wrong_kv(struct decoder *x, const struct st_kv *kv, const char *reason)
{
	return wrong(x, kv->key, kv->value, strlen(kv->value), reason);
}

/* One piece of text up to a separator or the end; *s moves behind the separator, to NULL at the
 * end. */
struct piece {
	const char *s;
	size_t len;
};

static struct piece next_piece(const char **s, char separator)
{
	const char *end = strchr(*s, separator);
	struct piece ret = {*s, end != NULL ? (size_t)(end - *s) : strlen(*s)};

	*s = end != NULL ? end + 1 : NULL;
	return ret;
}

static bool piece_is(struct piece p, const char *s)
{
	return strlen(s) == p.len && memcmp(p.s, s, p.len) == 0;
}

/* ---- values ---- */

static int gpu_find(struct decoder *x, const struct st_kv *kv, struct piece uuid, uint8_t *ret)
{
	for (uint8_t i = 0; i < x->node->gpu_count; i++) {
		if (piece_is(uuid, x->node->gpus[i].uuid)) {
			*ret = i;
			return 0;
		}
	}
	return wrong(x, kv->key, uuid.s, uuid.len, "is not a GPU of this node");
}

static int read_devices(struct decoder *x, const struct st_kv *kv, struct st_grant *g)
{
	const size_t cdi_len = strlen(CONTRACT_CDI);
	bool cdi = strncmp(kv->value, CONTRACT_CDI, cdi_len) == 0;
	const char *s = kv->value;

	while (s != NULL) {
		struct piece p = next_piece(&s, ',');
		int r;

		if (g->count == ST_GPUS_MAX)
			return wrong_kv(x, kv, "has too many GPUs");
		if (cdi && (p.len < cdi_len || memcmp(p.s, CONTRACT_CDI, cdi_len) != 0))
			return wrong_kv(x, kv, "mixes CDI names and others");
		if (cdi)
			p = (struct piece){p.s + cdi_len, p.len - cdi_len};
		r = gpu_find(x, kv, p, &g->gpu[g->count]);
		if (r != 0)
			return r;
		if (memchr(g->gpu, g->gpu[g->count], g->count) != NULL)
			return wrong_kv(x, kv, "has a GPU twice");
		g->count++;
	}
	return 0;
}

static int read_number(const char *text, int64_t max, int64_t *ret)
{
	if (text[0] < '0' || text[0] > '9' || (text[0] == '0' && text[1] != '\0'))
		return ERR_INVALID;
	return integer_parse(text, 0, max, ret, NULL);
}

static int read_memory(struct decoder *x, const struct st_kv *kv, int32_t *ret_mib)
{
	size_t len = strlen(kv->value);
	char text[16];
	int64_t mib;

	if (len < 3 || len - 2 >= sizeof(text) || strcmp(kv->value + len - 2, "Mi") != 0)
		return wrong_kv(x, kv, "is not an amount such as 20480Mi");
	memcpy(text, kv->value, len - 2);
	text[len - 2] = '\0';
	if (read_number(text, INT32_MAX, &mib) != 0 || mib == 0)
		return wrong_kv(x, kv, "is not an amount such as 20480Mi");
	*ret_mib = (int32_t)mib;
	return 0;
}

static int read_portion(struct decoder *x, const struct st_kv *kv, int32_t *ret_nano)
{
	char plain[24];
	int64_t nano;

	if (decimal_parse_nano(kv->value, &nano, NULL) != 0 || nano == 0 || nano > ST_NANO ||
	    strcmp(decimal_format_nano(nano, plain), kv->value) != 0)
		return wrong_kv(x, kv, "is not a plain decimal in (0, 1]");
	*ret_nano = (int32_t)nano;
	return 0;
}

static int read_mode(struct decoder *x, const struct st_kv *kv, struct st_grant *g)
{
	int mode = st_mode_parse(kv->value);

	switch (mode) {
	case ST_MODE_TIME_SLICING:
	case ST_MODE_SM_SHARING:
		g->kind = ST_KIND_SHARE;
		break;
	case ST_MODE_EXCLUSIVE:
		g->kind = ST_KIND_WHOLE;
		break;
	case ST_MODE_MIG:
		g->kind = ST_KIND_MIG;
		break;
	default:
		return wrong_kv(x, kv, "is not a mode");
	}
	g->mode = (enum st_mode)mode;
	return 0;
}

/* GPU-<uuid>/<profile>:<start> */
static int read_instance(struct decoder *x, const struct st_kv *kv, struct piece p,
			 struct st_grant *g)
{
	const char *slash = memchr(p.s, '/', p.len), *end = p.s + p.len, *colon, *profile;
	const struct st_mig_geometry *geometry;
	char start_text[4] = "";
	int64_t start;
	int index, r;

	colon = slash != NULL ? memchr(slash, ':', (size_t)(end - slash)) : NULL;
	if (colon == NULL || end - colon > 3 ||
	    !contract_profile_valid(slash + 1, (size_t)(colon - slash - 1)))
		return wrong(x, kv->key, p.s, p.len, "is not GPU-<uuid>/<profile>:<start>");
	profile = slash + 1;
	memcpy(start_text, colon + 1, (size_t)(end - colon - 1));
	if (read_number(start_text, ST_MIG_UNITS_MAX - 1, &start) != 0)
		return wrong(x, kv->key, p.s, p.len, "has no start as MIG knows it");
	if (g->count > 0 &&
	    !piece_is((struct piece){profile, (size_t)(colon - profile)}, g->profile))
		return wrong_kv(x, kv, "has more than one profile");
	memcpy(g->profile, profile, (size_t)(colon - profile));
	r = gpu_find(x, kv, (struct piece){p.s, (size_t)(slash - p.s)}, &g->gpu[g->count]);
	if (r != 0)
		return r;
	g->start[g->count] = (uint8_t)start;
	for (int i = 0; i < g->count; i++) {
		if (g->gpu[i] == g->gpu[g->count] && g->start[i] == g->start[g->count])
			return wrong_kv(x, kv, "has an instance twice");
	}
	geometry = x->node->gpus[g->gpu[g->count]].mig;
	if (geometry == NULL)
		geometry = x->node->gpus[g->gpu[g->count]].mig_could;
	index = geometry != NULL ? st_mig_profile_find(geometry, g->profile) : -1;
	if (index < 0 || st_mig_bit(geometry, index, (int)start) == 0)
		return wrong(x, kv->key, p.s, p.len, "is not a placement that the GPU has");
	return 0;
}

static int read_placement(struct decoder *x, const struct st_kv *kv, struct st_grant *g)
{
	const char *s = kv->value;

	while (s != NULL) {
		struct piece p = next_piece(&s, ',');
		int r;

		if (g->count == ST_GPUS_MAX)
			return wrong_kv(x, kv, "has too many instances");
		r = read_instance(x, kv, p, g);
		if (r != 0)
			return r;
		g->count++;
	}
	return 0;
}

static int read_field(struct decoder *x, enum contract_field field, const struct st_kv *kv,
		      struct st_grant *g)
{
	switch (field) {
	case CONTRACT_DEVICES:
		return read_devices(x, kv, g);
	case CONTRACT_MEM_REQUEST:
		return read_memory(x, kv, &g->request_mib);
	case CONTRACT_MEM_LIMIT:
		return read_memory(x, kv, &g->limit_mib);
	case CONTRACT_MODE:
		return read_mode(x, kv, g);
	case CONTRACT_PORTION:
		return read_portion(x, kv, &g->compute_nano);
	default:
		return read_placement(x, kv, g);
	}
}

/* ---- one container ---- */

/* The container that a key's reference names. */
static int find_container(struct decoder *x, struct piece ref, unsigned fields, struct st_grant *g)
{
	const struct st_pod_spec *pod = x->pod;
	char want[ST_CONTAINER_CAP];

	for (size_t i = 0; i < pod->container_count; i++) {
		const char *name = pod->containers[i].name;

		if (name == NULL || strlen(name) >= ST_CONTAINER_CAP || name[0] == '\0')
			continue;
		contract_ref(x->opt, name, fields, want);
		if (piece_is(ref, want)) {
			memcpy(g->container, name, strlen(name) + 1);
			return 0;
		}
	}
	if (pod->container_count > 0 || ref.len == 0 || ref.len >= ST_CONTAINER_CAP ||
	    memchr(ref.s, '_', ref.len) != NULL || memchr(ref.s, '.', ref.len) != NULL)
		return wrong(x, CONTRACT_ALLOCATION, ref.s, ref.len,
			     "is not a container of the pod");
	memcpy(g->container, ref.s, ref.len);
	contract_ref(x->opt, g->container, fields, want);
	return piece_is(ref, want) ? 0
				   : wrong(x, CONTRACT_ALLOCATION, ref.s, ref.len,
					   "is too long for a container name here");
}

/* "main=drlm": the letters are the container's keys, in order. */
static int read_letters(struct decoder *x, struct piece letters, unsigned *ret_fields)
{
	int f = 0;

	*ret_fields = 0;
	for (size_t i = 0; i < letters.len; i++, f++) {
		while (f < CONTRACT_WRITTEN_COUNT && contract_fields[f].letter != letters.s[i])
			f++;
		if (f == CONTRACT_WRITTEN_COUNT)
			return wrong(x, CONTRACT_ALLOCATION, letters.s, letters.len,
				     "does not say which keys belong to it");
		*ret_fields |= 1U << f;
	}
	return 0;
}

/* Finds the annotations that one entry of the list covers. */
static int collect_entry(struct decoder *x, struct piece entry, unsigned *ret_fields,
			 const struct st_kv *kv[CONTRACT_WRITTEN_COUNT])
{
	const char *equals = memchr(entry.s, '=', entry.len);
	char ref[ST_CONTAINER_CAP] = "", key[CONTRACT_KEY_CAP];
	struct st_grant *g = &x->d.grants[x->d.grant_count];
	size_t ref_len = equals != NULL ? (size_t)(equals - entry.s) : 0;
	int r;

	if (equals == NULL || ref_len == 0 || ref_len >= sizeof(ref))
		return wrong(x, CONTRACT_ALLOCATION, entry.s, entry.len,
			     "does not say which keys belong to it");
	memcpy(ref, entry.s, ref_len);
	r = read_letters(x, (struct piece){equals + 1, entry.len - ref_len - 1}, ret_fields);
	if (r == 0)
		r = find_container(x, (struct piece){entry.s, ref_len}, *ret_fields, g);
	for (int f = 0; f < CONTRACT_WRITTEN_COUNT && r == 0; f++) {
		if ((*ret_fields & (1U << f)) == 0)
			continue;
		if (contract_key_format(x->opt, (enum contract_field)f, ref, key, x->err) != 0)
			return ERR_INVALID;
		kv[f] = contract_find(x->pod, key);
		if (kv[f] == NULL)
			return err_set(x->err, ERR_INVALID, CONTRACT_ALLOCATION ": %s is missing",
				       key);
		x->pairs[x->pair_count++] = *kv[f];
	}
	return r;
}

static int read_grant(struct decoder *x, const struct st_kv *const kv[CONTRACT_WRITTEN_COUNT],
		      unsigned fields, struct st_grant *g)
{
	const unsigned memory = 1U << CONTRACT_MEM_REQUEST | 1U << CONTRACT_MEM_LIMIT;
	const unsigned devices = 1U << CONTRACT_DEVICES, placement = 1U << CONTRACT_PLACEMENT;
	const unsigned mode = 1U << CONTRACT_MODE;
	unsigned must, may;
	int r = 0;

	for (int f = 0; f < CONTRACT_WRITTEN_COUNT && r == 0; f++) {
		if (kv[f] != NULL)
			r = read_field(x, (enum contract_field)f, kv[f], g);
	}
	if (r != 0)
		return r;
	must = mode | (g->kind == ST_KIND_MIG ? placement : devices) |
	       (g->kind == ST_KIND_SHARE ? memory : 0);
	may = must | memory | (g->kind == ST_KIND_SHARE ? 1U << CONTRACT_PORTION : 0);
	if ((fields & must) != must || (fields & ~may) != 0)
		return wrong(x, CONTRACT_ALLOCATION, g->container, strlen(g->container),
			     "has keys that do not go together");
	if (g->limit_mib > 0 && g->limit_mib < g->request_mib)
		return wrong_kv(x, kv[CONTRACT_MEM_LIMIT], "is below the request");
	return 0;
}

/* ---- the pod ---- */

/* Reads the list of containers. The digest is checked before any value is looked at, so that the
 * reason given is the first cause. */
static int read_list(struct decoder *x, const char *list, struct piece digest)
{
	const struct st_kv *kv[ST_ITEMS_MAX][CONTRACT_WRITTEN_COUNT] = {{NULL}};
	unsigned fields[ST_ITEMS_MAX] = {0};
	char want[CONTRACT_DIGEST_LEN + 1];
	const char *s = list[0] != '\0' ? list : NULL;

	while (s != NULL) {
		struct piece entry = next_piece(&s, ',');
		uint8_t n = x->d.grant_count;
		int r;

		if (n == ST_ITEMS_MAX)
			return wrong(x, CONTRACT_ALLOCATION, list, strlen(list),
				     "has too many containers");
		r = collect_entry(x, entry, &fields[n], kv[n]);
		if (r != 0)
			return r;
		for (int i = 0; i < n; i++) {
			if (strcmp(x->d.grants[i].container, x->d.grants[n].container) == 0)
				return wrong(x, CONTRACT_ALLOCATION, list, strlen(list),
					     "has a container twice");
		}
		x->d.grant_count++;
	}
	contract_digest(x->node->name, list, strlen(list), x->pairs, x->pair_count, want);
	if (!piece_is(digest, want))
		return wrong(
			x, CONTRACT_ALLOCATION, digest.s, digest.len,
			"is not the digest of the allocation: it was changed or is a leftover");
	for (int i = 0; i < x->d.grant_count; i++) {
		int r = read_grant(x, kv[i], fields[i], &x->d.grants[i]);

		if (r != 0)
			return r;
	}
	return 0;
}

int st_contract_decode(const struct st_cluster *c, const struct st_pod_spec *pod, uint32_t node,
		       const struct st_contract_options *opt, enum st_allocation_kind *ret_kind,
		       struct st_decision *ret, struct err *err)
{
	const struct st_kv *kv = contract_find(pod, CONTRACT_ALLOCATION);
	struct decoder x = {.pod = pod, .node = st_cluster_node(c, node), .opt = opt, .err = err};
	struct piece version, name, digest;
	const char *s;
	int r;

	if (kv == NULL) {
		*ret_kind = ST_ALLOCATION_NONE;
		return 0;
	}
	if (x.node == NULL)
		return wrong_kv(&x, kv, "is for a node that is not known");
	s = kv->value;
	version = next_piece(&s, ';');
	if (!piece_is(version, CONTRACT_VERSION))
		return wrong_kv(&x, kv, "has a version that is not " CONTRACT_VERSION);
	name = s != NULL ? next_piece(&s, ';') : (struct piece){"", 0};
	digest = s != NULL ? next_piece(&s, ';') : (struct piece){"", 0};
	if (s == NULL)
		return wrong_kv(&x, kv, "is cut");
	if (!piece_is(name, x.node->name) ||
	    (pod->node != NULL && pod->node[0] != '\0' && !piece_is(name, pod->node)))
		return wrong(&x, kv->key, name.s, name.len, "is not the node the pod is on");
	x.d.node = node;
	r = read_list(&x, s, digest);
	if (r != 0)
		return r;
	*ret = x.d;
	*ret_kind = ST_ALLOCATION_COMPLETE;
	return 0;
}
