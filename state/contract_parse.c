/* From a pod's annotations and resources to a request: contract_collect() gathers what is said about
 * each container, here one item is built from each. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/quantity.h"
#include "state/contract_parse_internal.h"

#define NANO_PERCENT (ST_NANO / 100)

/* ---- values ---- */

int contract_parse_bytes(struct parse *p, const char *key, const char *value, int32_t *ret_mib)
{
	int64_t mib, bytes;
	int r = quantity_parse(value, QUANTITY_MI, &mib, p->err);

	if (r != 0)
		return err_prefix(p->err, r, "%s", key);
	if (mib > INT32_MAX)
		return contract_bad(p, ERR_RANGE, key, value, "is more than any GPU has");
	if (mib <= 1 && quantity_parse(value, QUANTITY_ONE, &bytes, NULL) == 0 && bytes < 1048576)
		return contract_bad(p, ERR_RANGE, key, value, "is %lld byte%s, less than 1Mi%s",
				    (long long)bytes, bytes == 1 ? "" : "s",
				    bytes > 0 && value[strspn(value, "0123456789")] == '\0'
					    ? "; write \"Mi\" behind it if MiB are meant"
					    : "");
	*ret_mib = (int32_t)mib;
	return 0;
}

/* gpu-memory: a plain integer is MiB, all else is a quantity. */
static int parse_memory(struct parse *p, const char *key, const char *value, int32_t *ret_mib)
{
	int64_t mib;
	int r;

	if (value[0] == '\0' || value[strspn(value, "0123456789")] != '\0')
		return contract_parse_bytes(p, key, value, ret_mib);
	r = integer_parse(value, 1, INT32_MAX, &mib, NULL);
	if (r != 0)
		return contract_bad(p, r, key, value, "is not in 1..%d MiB", INT32_MAX);
	*ret_mib = (int32_t)mib;
	return 0;
}

/* A decimal in units of 10^-9, at most 1. */
static int parse_nano(struct parse *p, const char *key, const char *value, bool one_allowed,
		      int32_t *ret_nano)
{
	int64_t nano;
	int r = decimal_parse_nano(value, &nano, p->err);

	if (r == ERR_INVALID)
		return err_prefix(p->err, r, "%s", key);
	if (r != 0 || nano == 0 || nano > ST_NANO || (nano == ST_NANO && !one_allowed))
		return contract_bad(p, ERR_RANGE, key, value, "is not in (0, 1%c",
				    one_allowed ? ']' : ')');
	*ret_nano = (int32_t)nano;
	return 0;
}

/* ---- building ---- */

/* Was what the container's own memory and mode keys say written by an earlier bind? Then the key
 * that only the extender writes stands beside them (a pod that is bound, or was copied from one). */
static bool is_leftover(const struct parse *p, const struct slot *s)
{
	static const enum contract_field marks[] = {CONTRACT_DEVICES, CONTRACT_PLACEMENT};
	char key[CONTRACT_KEY_CAP];

	for (size_t i = 0; p->leftover && i < 2; i++) {
		if (contract_key_format(p->opt, marks[i], s->name, key, NULL) == 0 &&
		    contract_find(p->pod, key) != NULL)
			return true;
	}
	return false;
}

static void drop(struct parse *p, struct slot *s, enum contract_field field)
{
	if (p->left != NULL && s->kv[field] != NULL)
		p->left[s->kv[field] - p->pod->annotations] = true;
	s->kv[field] = NULL;
}

static void drop_leftover(struct parse *p, struct slot *s)
{
	const struct st_kv *mode = s->kv[CONTRACT_MODE];

	if (s->has_target_keys || s->whole.n > 0 || s->mig.n > 0 || s->kv[CONTRACT_MIG_PROFILE] ||
	    s->kv[CONTRACT_MIG_MEMORY] || s->hami[HAMI_MEM].n > 0 ||
	    s->hami[HAMI_MEM_PERCENT].n > 0 || s->hami[HAMI_CORES].n > 0) {
		drop(p, s, CONTRACT_MEM_REQUEST);
		drop(p, s, CONTRACT_MEM_LIMIT);
	}
	if (mode != NULL && (strcmp(mode->value, st_mode_name(ST_MODE_EXCLUSIVE)) == 0 ||
			     strcmp(mode->value, st_mode_name(ST_MODE_MIG)) == 0))
		drop(p, s, CONTRACT_MODE);
}

static const struct st_kv *own_share(const struct slot *s)
{
	return s->kv[CONTRACT_MEM_REQUEST] ? s->kv[CONTRACT_MEM_REQUEST]
					   : s->kv[CONTRACT_MEM_LIMIT];
}

static const struct amount *hami_share(const struct slot *s)
{
	for (int i = 0; i < HAMI_COUNT; i++) {
		if (s->hami[i].n > 0)
			return &s->hami[i];
	}
	return NULL;
}

static const struct st_kv *mig_key(const struct slot *s)
{
	return s->kv[CONTRACT_MIG_PROFILE] ? s->kv[CONTRACT_MIG_PROFILE]
					   : s->kv[CONTRACT_MIG_MEMORY];
}

/* A container gets one thing: refuses the combinations. */
static int check_kinds(struct parse *p, const struct slot *s)
{
	int pod_key = p->pod_value[POD_FRACTION] != NULL ? POD_FRACTION : POD_MEMORY;
	const struct st_kv *own = own_share(s), *mig = mig_key(s);
	const struct amount *hami = hami_share(s);
	struct st_kv share = {NULL, NULL};

	if (s->has_target_keys)
		share = (struct st_kv){contract_pod_keys[pod_key], p->pod_value[pod_key]};
	if (own != NULL && share.key != NULL && own == s->kv[CONTRACT_MEM_LIMIT])
		return contract_bad(p, ERR_INVALID, own->key, own->value,
				    "cannot be combined with %s; use %s.limit", share.key,
				    share.key);
	if (own != NULL && share.key != NULL)
		return contract_bad(p, ERR_INVALID, own->key, own->value,
				    "is a second share for this container beside %s", share.key);
	if (own != NULL)
		share = *own;
	if (hami != NULL && share.key != NULL)
		return contract_bad(p, ERR_INVALID, share.key, share.value,
				    "is a second share for this container beside %s", hami->name);
	if (hami != NULL)
		share = (struct st_kv){hami->name, hami->text};
	if (share.key != NULL && hami == NULL && s->whole.n > 0)
		return contract_bad(
			p, ERR_INVALID, share.key, share.value,
			"is a share, but container \"%s\" has whole GPUs (nvidia.com/gpu) too",
			s->name);
	if (mig != NULL || s->mig.n > 0) {
		if (share.key != NULL || s->whole.n > 0)
			return contract_bad(p, ERR_INVALID, mig != NULL ? mig->key : s->mig.name,
					    mig != NULL ? mig->value : s->mig.text,
					    "cannot be combined with %s in container \"%s\"",
					    share.key != NULL ? share.key : RESOURCE_GPU, s->name);
	}
	return 0;
}

static int build_mode(struct parse *p, const struct slot *s, struct st_item *it)
{
	const struct st_kv *mode = s->kv[CONTRACT_MODE], *compute = s->kv[CONTRACT_COMPUTE_REQUEST];
	int m = ST_MODE_TIME_SLICING;

	if (mode != NULL) {
		m = st_mode_parse(mode->value);
		if (m != ST_MODE_TIME_SLICING && m != ST_MODE_SM_SHARING)
			return contract_bad(p, ERR_INVALID, mode->key, mode->value,
					    "is neither time-slicing nor sm-sharing");
	}
	if (it == NULL || it->kind != ST_KIND_SHARE) {
		if (compute != NULL)
			return contract_bad(p, ERR_INVALID, compute->key, compute->value,
					    "is for container \"%s\", which has no share of a GPU",
					    s->name);
		if (mode != NULL && it != NULL && it->kind == ST_KIND_MIG &&
		    m == ST_MODE_SM_SHARING)
			return contract_bad(
				p, ERR_INVALID, mode->key, mode->value,
				"is for container \"%s\", which gets a MIG instance: "
				"MPS inside a MIG instance is not supported, its memory "
				"limits do not hold there",
				s->name);
		if (mode != NULL)
			contract_warn(p, mode->key, mode->value,
				      "has no effect: the container has no share of a GPU");
		return 0;
	}
	if (it->compute_nano > 0 && compute != NULL)
		return contract_bad(p, ERR_INVALID, compute->key, compute->value,
				    "is a second compute share beside nvidia.com/gpucores");
	if (mode != NULL || it->mode == ST_MODE_FREE)
		it->mode = (enum st_mode)m;
	it->mode_preferred = p->preferred;
	if (compute == NULL)
		return 0;
	if (it->mode == ST_MODE_TIME_SLICING && !p->preferred)
		contract_warn(p, compute->key, compute->value,
			      "is ignored in time-slicing: only sm-sharing limits compute");
	return parse_nano(p, compute->key, compute->value, true, &it->compute_nano);
}

static int build_own_share(struct parse *p, const struct slot *s, struct st_item *it)
{
	const struct st_kv *request = s->kv[CONTRACT_MEM_REQUEST],
			   *limit = s->kv[CONTRACT_MEM_LIMIT];
	int r = 0;

	if (limit != NULL)
		r = contract_parse_bytes(p, limit->key, limit->value, &it->limit_mib);
	if (r == 0 && request != NULL)
		r = contract_parse_bytes(p, request->key, request->value, &it->request_mib);
	if (r != 0)
		return r;
	if (request == NULL)
		it->request_mib = it->limit_mib;
	if (limit != NULL && it->limit_mib < it->request_mib)
		return contract_bad(p, ERR_INVALID, limit->key, limit->value,
				    "is below the request of %d MiB", it->request_mib);
	return 0;
}

static int build_pod_share(struct parse *p, struct st_item *it)
{
	const char *const *v = p->pod_value, *limit;
	int r;

	if (v[POD_FRACTION] != NULL) {
		limit = v[POD_FRACTION_LIMIT];
		r = parse_nano(p, contract_pod_keys[POD_FRACTION], v[POD_FRACTION], false,
			       &it->request_nano);
		if (r == 0 && limit != NULL)
			r = parse_nano(p, contract_pod_keys[POD_FRACTION_LIMIT], limit, true,
				       &it->limit_nano);
		if (r == 0 && limit != NULL && it->limit_nano <= it->request_nano)
			return contract_bad(p, ERR_INVALID, contract_pod_keys[POD_FRACTION_LIMIT],
					    limit, "is not above gpu-fraction: \"%.64s\"",
					    v[POD_FRACTION]);
		return r;
	}
	limit = v[POD_MEMORY_LIMIT];
	r = parse_memory(p, contract_pod_keys[POD_MEMORY], v[POD_MEMORY], &it->request_mib);
	if (r == 0 && limit != NULL)
		r = contract_parse_bytes(p, contract_pod_keys[POD_MEMORY_LIMIT], limit,
					 &it->limit_mib);
	if (r == 0 && limit != NULL && it->limit_mib < it->request_mib)
		return contract_bad(p, ERR_INVALID, contract_pod_keys[POD_MEMORY_LIMIT], limit,
				    "is below gpu-memory, %d MiB", it->request_mib);
	return r;
}

/* HAMi's names: a count of GPUs, and memory and cores of each. All cores mean an exclusive GPU. */
static int build_hami(struct parse *p, const struct slot *s, struct st_item *it)
{
	const struct amount *mem = &s->hami[HAMI_MEM], *percent = &s->hami[HAMI_MEM_PERCENT];
	const struct amount *cores = &s->hami[HAMI_CORES];

	if (mem->n > 0 && percent->n > 0)
		return contract_bad_amount(
			p, ERR_INVALID, s, percent,
			"together with nvidia.com/gpumem; only one of them can be given");
	if (s->whole.name != NULL && s->whole.n == 0)
		return contract_bad_amount(
			p, ERR_INVALID, s, &s->whole,
			"is no GPU, but the container asks for memory or cores of one");
	it->count = s->whole.name != NULL ? (uint8_t)s->whole.n : 1;
	if (cores->n == 100) {
		it->kind = ST_KIND_WHOLE;
		it->mode = ST_MODE_EXCLUSIVE;
		if (mem->n > 0 || percent->n > 0)
			contract_warn(p, cores->name, cores->text,
				      "gives the container its GPUs whole");
		return 0;
	}
	if (mem->n > 0)
		it->request_mib = (int32_t)mem->n;
	else
		it->request_nano = (int32_t)(percent->n > 0 ? percent->n * NANO_PERCENT : ST_NANO);
	if (cores->n > 0) {
		it->compute_nano = (int32_t)(cores->n * NANO_PERCENT);
		it->mode = ST_MODE_SM_SHARING;
	}
	return 0;
}

/* "1g.5gb.me" of a resource name is profile "1g.5gb+me". */
static void profile_of_resource(const char *resource, char profile[ST_MIG_NAME_CAP])
{
	const char *name = resource + strlen(RESOURCE_MIG), *dot;

	snprintf(profile, ST_MIG_NAME_CAP, "%s", name);
	dot = strstr(profile, "gb.");
	if (dot != NULL)
		profile[dot - profile + 2] = '+';
}

static int build_mig(struct parse *p, const struct slot *s, struct st_item *it)
{
	const struct st_kv *key = s->kv[CONTRACT_MIG_PROFILE], *mem = s->kv[CONTRACT_MIG_MEMORY];
	char profile[ST_MIG_NAME_CAP];

	it->kind = ST_KIND_MIG;
	it->mode = ST_MODE_MIG;
	it->count = s->mig.n > 0 ? (uint8_t)s->mig.n : 1;
	if (mem != NULL && (key != NULL || s->mig.n > 0))
		return contract_bad(
			p, ERR_INVALID, mem->key, mem->value,
			"together with a MIG profile (%s); only one of them can be given",
			key != NULL ? key->key : s->mig.name);
	if (mem != NULL)
		return parse_memory(p, mem->key, mem->value, &it->request_mib);
	if (s->mig.n > 0) {
		profile_of_resource(s->mig.name, profile);
		if (strlen(s->mig.name) - strlen(RESOURCE_MIG) >= ST_MIG_NAME_CAP ||
		    !contract_profile_valid(profile, strlen(profile)))
			return contract_bad_amount(
				p, ERR_INVALID, s, &s->mig,
				"is not for a MIG profile such as nvidia.com/mig-1g.10gb");
		memcpy(it->profile, profile, sizeof(profile));
	}
	if (key != NULL) {
		if (!contract_profile_valid(key->value, strlen(key->value)))
			return contract_bad(p, ERR_INVALID, key->key, key->value,
					    "is not a MIG profile such as 1g.10gb or 1g.10gb+me");
		if (s->mig.n > 0 && strcmp(it->profile, key->value) != 0)
			return contract_bad(p, ERR_INVALID, key->key, key->value,
					    "is another profile than %s", s->mig.name);
		snprintf(it->profile, sizeof(it->profile), "%s", key->value);
	}
	if (it->count > 1)
		contract_warn(p, s->mig.name, s->mig.text,
			      "MIG instances: a CUDA process uses one of them at a time");
	return 0;
}

/* isolation: hardware on a share: an instance at least as large on each of its GPUs. */
static int build_isolation(struct parse *p, const struct slot *s, struct st_item *it)
{
	const struct st_kv *compute = s->kv[CONTRACT_COMPUTE_REQUEST];

	if (!p->hardware || it->kind != ST_KIND_SHARE)
		return 0;
	if (p->opt == NULL || !p->opt->mig_isolation)
		return contract_bad(
			p, ERR_INVALID, contract_pod_keys[POD_ISOLATION],
			p->pod_value[POD_ISOLATION],
			"asks for a MIG instance for the share of container \"%s\", and "
			"serving shares by MIG is switched off",
			s->name);
	if (compute != NULL)
		return contract_bad(p, ERR_INVALID, compute->key, compute->value,
				    "cannot be combined with isolation: hardware: the MIG instance "
				    "decides on compute");
	if (it->compute_nano > 0)
		return contract_bad_amount(p, ERR_INVALID, s, &s->hami[HAMI_CORES],
					   "cannot be combined with isolation: hardware: the MIG "
					   "instance decides on compute");
	if (it->limit_mib > 0 || it->limit_nano > 0)
		contract_warn(p, contract_pod_keys[POD_ISOLATION], p->pod_value[POD_ISOLATION],
			      "makes the limit that of the MIG instance");
	it->kind = ST_KIND_MIG;
	it->mode = ST_MODE_MIG;
	it->apart = true;
	it->limit_mib = it->limit_nano = 0;
	return 0;
}

/* gpu-fraction-num-devices, for the item of the container that pod-level keys speak of. */
static int build_devices(struct parse *p, const struct slot *s, struct st_item *it)
{
	const char *value = p->pod_value[POD_DEVICES];
	int64_t n;
	int r;

	if (value == NULL || s->container != p->target)
		return 0;
	if (it->kind != ST_KIND_SHARE || hami_share(s) != NULL)
		return contract_bad(p, ERR_INVALID, contract_pod_keys[POD_DEVICES], value,
				    "needs gpu-fraction or gpu-memory for container \"%s\"",
				    s->name);
	r = integer_parse(value, 1, ST_GPUS_MAX, &n, p->err);
	if (r == ERR_RANGE)
		return contract_bad(p, r, contract_pod_keys[POD_DEVICES], value, "is not in 1..%d",
				    ST_GPUS_MAX);
	if (r != 0)
		return err_prefix(p->err, r, "%s", contract_pod_keys[POD_DEVICES]);
	it->count = (uint8_t)n;
	p->devices_used = true;
	return 0;
}

static int check_container(struct parse *p, const struct slot *s)
{
	static const char legal[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
	size_t len = strlen(s->name);
	struct contract_shown shown;

	contract_show(s->name, len, &shown);
	if (len == 0 || len >= ST_CONTAINER_CAP || s->name[strspn(s->name, legal)] != '\0' ||
	    s->name[0] == '-' || s->name[len - 1] == '-')
		return err_set(p->err, ERR_INVALID, "container \"%s\": the name is not a DNS label",
			       shown.text);
	for (size_t i = s->container + 1; i < p->pod->container_count; i++) {
		const char *other = p->pod->containers[i].name;

		if (other != NULL && strcmp(other, s->name) == 0)
			return err_set(p->err, ERR_INVALID, "container \"%s\" is there twice",
				       shown.text);
	}
	return 0;
}

/* *ret_any is false when the container gets no GPU. */
static int build_item(struct parse *p, struct slot *s, struct st_item *it, bool *ret_any)
{
	int r;

	*ret_any = false;
	r = check_container(p, s);
	if (r != 0)
		return r;
	if (is_leftover(p, s))
		drop_leftover(p, s);
	r = check_kinds(p, s);
	if (r != 0)
		return r;
	*it = (struct st_item){.count = 1, .kind = ST_KIND_SHARE};
	memcpy(it->container, s->name, strlen(s->name) + 1);
	if (own_share(s) != NULL) {
		r = build_own_share(p, s, it);
	} else if (s->has_target_keys) {
		r = build_pod_share(p, it);
	} else if (hami_share(s) != NULL) {
		r = build_hami(p, s, it);
	} else if (s->mig.n > 0 || mig_key(s) != NULL) {
		r = build_mig(p, s, it);
	} else if (s->whole.n > 0) {
		it->kind = ST_KIND_WHOLE;
		it->mode = ST_MODE_EXCLUSIVE;
		it->count = (uint8_t)s->whole.n;
	} else {
		r = contract_check_wish(p, s, NULL);
		return r == 0 ? build_mode(p, s, NULL) : r;
	}
	if (r == 0)
		r = build_devices(p, s, it);
	if (r == 0)
		r = build_isolation(p, s, it);
	if (r == 0)
		r = build_mode(p, s, it);
	if (r == 0)
		r = contract_check_wish(p, s, it);
	*ret_any = r == 0;
	return r;
}

/* ---- the pod ---- */

static int parse_choice(struct parse *p, enum pod_key key, const char *const names[2], int *ret)
{
	const char *value = p->pod_value[key];

	*ret = -1;
	for (int i = 0; value != NULL && i < 2; i++) {
		if (strcmp(value, names[i]) == 0)
			*ret = i;
	}
	if (value != NULL && *ret < 0)
		return contract_bad(p, ERR_INVALID, contract_pod_keys[key], value,
				    "is neither %s nor %s", names[0], names[1]);
	return 0;
}

static int parse_product(struct parse *p, struct st_request *req)
{
	const char *value = p->pod_value[POD_PRODUCT];

	if (value == NULL)
		return 0;
	if (value[strspn(value, "| \t\r\n")] == '\0')
		return contract_bad(p, ERR_INVALID, contract_pod_keys[POD_PRODUCT], value,
				    "names no product");
	if (strlen(value) >= sizeof(req->product))
		return contract_bad(p, ERR_RANGE, contract_pod_keys[POD_PRODUCT], value,
				    "is longer than %zu bytes", sizeof(req->product) - 1);
	memcpy(req->product, value, strlen(value) + 1);
	return 0;
}

static int parse_pod_keys(struct parse *p, struct st_request *req)
{
	static const char *const policies[] = {"required", "preferred"};
	static const char *const workloads[] = {"memory-bound", "compute-bound"};
	const char *isolation = p->pod_value[POD_ISOLATION];
	int policy, workload;
	int r = parse_choice(p, POD_POLICY, policies, &policy);

	if (r == 0 && isolation != NULL && strcmp(isolation, "hardware") != 0)
		return contract_bad(p, ERR_INVALID, contract_pod_keys[POD_ISOLATION], isolation,
				    "is not hardware");
	p->hardware = isolation != NULL;

	if (r == 0)
		r = parse_choice(p, POD_WORKLOAD, workloads, &workload);
	if (r == 0)
		r = parse_product(p, req);
	if (r != 0)
		return r;
	p->preferred = policy == 1;
	req->workload = workload < 0    ? ST_WORKLOAD_NONE
			: workload == 0 ? ST_WORKLOAD_MEMORY_BOUND
					: ST_WORKLOAD_COMPUTE_BOUND;
	return 0;
}

/* What only shows when all items are there. */
static int check_request(struct parse *p, const struct st_request *req)
{
	static const enum pod_key without_effect[] = {POD_CONTAINER, POD_POLICY};
	int whole = 0;
	bool share = false;

	for (int i = 0; i < req->item_count; i++) {
		const struct st_item *it = &req->items[i];

		if (it->kind == ST_KIND_WHOLE)
			whole += it->count;
		share = share || it->kind == ST_KIND_SHARE;
	}
	if (whole > ST_GPUS_MAX)
		return err_set(p->err, ERR_RANGE,
			       "nvidia.com/gpu: %d in all containers, at most %d are supported",
			       whole, ST_GPUS_MAX);
	if (p->pod_value[POD_DEVICES] != NULL && !p->devices_used)
		return contract_bad(p, ERR_INVALID, contract_pod_keys[POD_DEVICES],
				    p->pod_value[POD_DEVICES], "needs gpu-fraction or gpu-memory");
	for (size_t i = 0; i < 2 && !share; i++) {
		if (p->pod_value[without_effect[i]] != NULL)
			contract_warn(p, contract_pod_keys[without_effect[i]],
				      p->pod_value[without_effect[i]],
				      "has no effect: the pod has no share of a GPU");
	}
	return 0;
}

static int parse(const struct st_pod_spec *pod, const struct st_contract_options *opt,
		 struct st_request *ret, struct st_warnings *ret_warn, bool *left, struct err *err)
{
	struct parse p = {.pod = pod, .opt = opt, .warn = ret_warn, .err = err};
	struct st_request req = {0};
	int r;

	p.left = left;
	if (ret_warn != NULL)
		ret_warn->count = 0;
	r = contract_collect(&p);
	if (r == 0)
		r = parse_pod_keys(&p, &req);
	for (size_t i = 0; r == 0 && i < p.slot_count; i++) {
		bool any;

		r = build_item(&p, &p.slots[i], &req.items[req.item_count], &any);
		if (r == 0 && any)
			req.item_count++;
	}
	if (r == 0)
		r = check_request(&p, &req);
	if (r != 0)
		return r;
	st_pod_spec_totals(pod, &req.cpu_milli, &req.mem_mib);
	*ret = req;
	return 0;
}

int st_contract_parse(const struct st_pod_spec *pod, const struct st_contract_options *opt,
		      struct st_request *ret, struct st_warnings *ret_warn, struct err *err)
{
	return parse(pod, opt, ret, ret_warn, NULL, err);
}

int st_contract_leftovers(const struct st_pod_spec *pod, const struct st_contract_options *opt,
			  bool *ret, struct err *err)
{
	struct st_request req;

	memset(ret, 0, pod->annotation_count * sizeof(*ret));
	return parse(pod, opt, &req, NULL, ret, err);
}
