#include "replay/change.h"

#include <inttypes.h>
#include <string.h>

#include "base/quantity.h"
#include "base/rng.h"
#include "replay/node_type.h"

#define STREAM_SWITCH UINT64_C(0x7377697463680000)

static int out_of_memory(struct err *err)
{
	return err_set(err, ERR_NOMEM, "out of memory");
}

/* "12:rest": the number; *ret_rest behind the colon, NULL where there is none. */
static int leading_number(const char *text, int64_t *ret, const char **ret_rest, struct err *err)
{
	const char *colon = strchr(text, ':');
	size_t len = colon != NULL ? (size_t)(colon - text) : strlen(text);
	char number[24];

	if (len >= sizeof(number))
		return err_set(err, ERR_INVALID, "\"%.80s\" does not begin with a number", text);
	memcpy(number, text, len);
	number[len] = '\0';
	*ret_rest = colon != NULL ? colon + 1 : NULL;
	return integer_parse(number, 1, RP_NODES_MAX, ret, err);
}

static int add_nodes(const char *text, struct rp_trace *t, struct err *err)
{
	struct rp_node_type type;
	const char *rest = NULL;
	int64_t n = 0;
	int rc = leading_number(text, &n, &rest, err);

	if (rc == 0 && rest == NULL)
		rc = err_set(err, ERR_INVALID, "\"%.80s\" is not of the form N:FIELDS", text);
	if (rc == 0)
		rc = rp_node_type_parse(rest, &type, err);
	return rc == 0 ? rp_trace_add_nodes(t, &type, n, err) : rc;
}

static int remove_nodes(const char *text, struct rp_trace *t, struct err *err)
{
	const char *model = NULL;
	int64_t n = 0, want;
	int rc = leading_number(text, &n, &model, err);

	if (rc < 0)
		return rc;
	want = n;
	for (size_t i = t->node_count; i > 0 && n > 0; i--) {
		struct rp_node *node = &t->nodes[i - 1];
		const char *m =
			node->model != STRPOOL_NONE ? strpool_str(t->models, node->model) : "";

		if (node->removed || (model != NULL && strcmp(m, model) != 0))
			continue;
		node->removed = true;
		t->gpu_milli -= (int64_t)node->gpu_count * RP_GPU_UNITS;
		n--;
	}
	if (n > 0)
		return err_set(err, ERR_RANGE, "\"%.80s\": there are only %" PRId64 " such nodes",
			       text, want - n);
	return 0;
}

static int change_model(const char *text, struct rp_trace *t, struct err *err)
{
	const char *eq = strchr(text, '=');
	uint32_t from, to;
	size_t changed = 0;

	if (eq == NULL || eq == text || eq[1] == '\0' || strlen(eq + 1) >= ST_PRODUCT_CAP ||
	    strchr(eq + 1, '|') != NULL)
		return err_set(err, ERR_INVALID, "\"%.80s\" is not of the form FROM=TO", text);
	if (rp_trace_is_json(t))
		return err_set(err, ERR_INVALID,
			       "\"%.80s\": models of a live cluster come from its nodes; remove "
			       "some and add others",
			       text);
	from = strpool_find(t->models, text, (size_t)(eq - text));
	to = strpool_intern(t->models, eq + 1, strlen(eq + 1));
	if (to == STRPOOL_NONE)
		return out_of_memory(err);
	for (size_t i = 0; from != STRPOOL_NONE && i < t->node_count; i++)
		if (t->nodes[i].model == from) {
			t->nodes[i].model = to;
			changed++;
		}
	if (changed == 0)
		return err_set(err, ERR_INVALID, "\"%.80s\": no node has that model", text);
	return 0;
}

/* ---- kinds of requests ---- */

enum kind { WHOLE, FRACTION, SM_SHARING, MIG, KINDS };
static const char *const kind_names[KINDS] = {"whole", "fraction", "sm-sharing", "mig"};

static int kind_of(const struct st_item *it)
{
	if (it->kind == ST_KIND_WHOLE)
		return WHOLE;
	if (it->kind == ST_KIND_MIG)
		return MIG;
	return it->mode == ST_MODE_SM_SHARING ? SM_SHARING : FRACTION;
}

static int find_kind(const char *s, size_t len)
{
	for (int i = 0; i < KINDS; i++)
		if (strlen(kind_names[i]) == len && memcmp(kind_names[i], s, len) == 0)
			return i;
	return -1;
}

/* From zeroed memory, as shapes are compared by their bytes. */
static void convert(const struct rp_changes *c, const struct rp_trace *t, enum kind to,
		    struct st_item *it)
{
	struct st_item was = *it;

	memset(it, 0, sizeof(*it));
	memcpy(it->container, was.container, sizeof(it->container));
	it->count = was.count;
	switch (to) {
	case WHOLE:
		it->kind = ST_KIND_WHOLE;
		it->mode = ST_MODE_EXCLUSIVE;
		break;
	case MIG:
		it->kind = ST_KIND_MIG;
		it->mode = ST_MODE_MIG;
		memcpy(it->profile, c->profile, strlen(c->profile));
		break;
	case FRACTION:
	case SM_SHARING:
	default:
		it->kind = ST_KIND_SHARE;
		it->mode = to == SM_SHARING ? ST_MODE_SM_SHARING : ST_MODE_TIME_SLICING;
		if (was.kind == ST_KIND_SHARE) {
			it->request_mib = was.request_mib;
			it->request_nano = was.request_nano;
			it->limit_mib = was.limit_mib;
			it->limit_nano = was.limit_nano;
			it->compute_nano = to == SM_SHARING ? was.compute_nano : 0;
		} else if (rp_trace_is_json(t)) {
			it->request_nano = (int32_t)c->fraction_nano;
		} else {
			it->request_mib = (int32_t)(c->fraction_nano / (ST_NANO / RP_GPU_UNITS));
		}
		break;
	}
}

static int switch_pod(const struct rp_changes *c, struct rp_trace *t, uint32_t pod, enum kind to,
		      struct err *err)
{
	struct st_request req;
	uint32_t old = t->pods[pod], shape;

	memcpy(&req, &t->shapes[old].req, sizeof(req));
	convert(c, t, to, &req.items[0]);
	shape = rp_trace_shape(t, &req);
	if (shape == UINT32_MAX)
		return out_of_memory(err);
	t->shapes[old].count--;
	t->shapes[shape].count++;
	t->pods[pod] = shape;
	return 0;
}

static int switch_kinds(const struct rp_changes *c, size_t number, struct rp_trace *t,
			size_t *switched, struct err *err)
{
	const char *text = c->switches.v[number], *one = strchr(text, ':');
	const char *two = one != NULL ? strchr(one + 1, ':') : NULL;
	int from = two != NULL ? find_kind(text, (size_t)(one - text)) : -1;
	int to = two != NULL ? find_kind(one + 1, (size_t)(two - one - 1)) : -1;
	struct rng rng;
	int64_t share;
	int rc;

	if (from < 0 || to < 0 || from == to)
		return err_set(err, ERR_INVALID,
			       "\"%.80s\" is not of the form FROM:TO:SHARE, of two of whole, "
			       "fraction, sm-sharing and mig",
			       text);
	rc = decimal_parse_nano(two + 1, &share, err);
	if (rc == 0 && share > ST_NANO)
		rc = err_set(err, ERR_RANGE, "\"%.80s\": a share of more than 1", text);
	if (rc == 0 && to == MIG && c->profile == NULL)
		rc = err_set(err, ERR_INVALID, "\"%.80s\" wants --profile", text);
	rng_init(&rng, (c->seed ^ STREAM_SWITCH) + number);
	for (uint32_t i = 0; rc == 0 && i < t->pod_count; i++) {
		const struct st_request *req = &t->shapes[t->pods[i]].req;
		bool chosen = (int64_t)rng_below(&rng, ST_NANO) < share;

		if (!chosen || req->item_count != 1 || req->items[0].count != 1 ||
		    kind_of(&req->items[0]) != from)
			continue;
		rc = switch_pod(c, t, i, (enum kind)to, err);
		*switched += rc == 0;
	}
	return rc;
}

int rp_changes_apply(const struct rp_changes *c, struct rp_trace *t, size_t *ret_switched,
		     struct err *err)
{
	int rc = 0;

	*ret_switched = 0;
	if (c->profile != NULL && strlen(c->profile) >= ST_MIG_NAME_CAP)
		return err_set(err, ERR_INVALID, "--profile: \"%.80s\" is too long", c->profile);
	for (size_t i = 0; i < c->remove.count; i++)
		if ((rc = remove_nodes(c->remove.v[i], t, err)) < 0)
			return err_prefix(err, rc, "--remove-nodes");
	for (size_t i = 0; i < c->model.count; i++)
		if ((rc = change_model(c->model.v[i], t, err)) < 0)
			return err_prefix(err, rc, "--model");
	/* After the others: those are about the nodes of the file. */
	for (size_t i = 0; i < c->add.count; i++)
		if ((rc = add_nodes(c->add.v[i], t, err)) < 0)
			return err_prefix(err, rc, "--add-nodes");
	for (size_t i = 0; i < c->switches.count; i++)
		if ((rc = switch_kinds(c, i, t, ret_switched, err)) < 0)
			return err_prefix(err, rc, "--switch");
	return 0;
}
