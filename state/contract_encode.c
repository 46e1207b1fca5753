/* From a decision to the annotations of the Binding. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/quantity.h"
#include "state/contract_internal.h"

/* One (key, value) of an allocation: at most this many for each grant, and tessera.dev/allocation. */
#define PAIRS_MAX (ST_ITEMS_MAX * CONTRACT_WRITTEN_COUNT + 1)

struct encoder {
	const struct st_node *node;
	const struct st_contract_options *opt;
	struct st_annotations *out;
	struct buf list; /* "main=drlm,side=drlmp" */
	struct err *err;
};

/* Takes the value's content; the buffer is empty afterwards. */
static int put(struct encoder *e, const char *key, struct buf *value)
{
	char *k = strdup(key), *v = buf_take(value);

	if (k == NULL || v == NULL || e->out->count == e->out->cap) {
		free(k);
		free(v);
		return err_set(e->err, ERR_NOMEM, "allocation: no memory");
	}
	e->out->kv[e->out->count++] = (struct st_kv){k, v};
	return 0;
}

/* Names of nodes and GPUs become parts of values: no separators in them. */
static bool plain_name(const char *s)
{
	if (s == NULL || s[0] == '\0')
		return false;
	for (; *s != '\0'; s++) {
		if (*s <= ' ' || *s > '~' || strchr(",;/=:", *s) != NULL)
			return false;
	}
	return true;
}

static unsigned fields_of(const struct st_grant *g)
{
	unsigned fields = 1U << CONTRACT_MODE;

	fields |= 1U << (g->kind == ST_KIND_MIG ? CONTRACT_PLACEMENT : CONTRACT_DEVICES);
	if (g->request_mib > 0)
		fields |= 1U << CONTRACT_MEM_REQUEST;
	if (g->limit_mib > 0)
		fields |= 1U << CONTRACT_MEM_LIMIT;
	if (g->compute_nano > 0)
		fields |= 1U << CONTRACT_PORTION;
	return fields;
}

/* A decision comes from our own core: what is wrong with it is a bug, said before it is written
 * into the cluster. */
static const char *grant_fault(const struct st_node *n, const struct st_grant *g)
{
	bool share = g->kind == ST_KIND_SHARE;

	if (memchr(g->container, '\0', sizeof(g->container)) == NULL || g->container[0] == '\0' ||
	    strpbrk(g->container, ",;=._") != NULL)
		return "container name";
	if (g->count < 1 || g->count > ST_GPUS_MAX)
		return "number of GPUs";
	if (g->request_mib < 0 || g->limit_mib < 0 ||
	    (g->limit_mib > 0 && g->limit_mib < g->request_mib) ||
	    (share && (g->request_mib < 1 || g->limit_mib < 1)))
		return "memory";
	if (g->compute_nano < 0 || g->compute_nano > ST_NANO || (!share && g->compute_nano > 0))
		return "compute share";
	if (share ? g->mode != ST_MODE_TIME_SLICING && g->mode != ST_MODE_SM_SHARING
		  : g->mode != (g->kind == ST_KIND_MIG ? ST_MODE_MIG : ST_MODE_EXCLUSIVE))
		return "mode";
	if (g->kind == ST_KIND_MIG &&
	    !contract_profile_valid(g->profile, strnlen(g->profile, sizeof(g->profile))))
		return "MIG profile";
	for (int i = 0; i < g->count; i++) {
		if (g->gpu[i] >= n->gpu_count)
			return "GPU index";
		if (!plain_name(n->gpus[g->gpu[i]].uuid))
			return "GPU name";
		for (int j = 0; j < i; j++) {
			if (g->gpu[i] == g->gpu[j] &&
			    (g->kind != ST_KIND_MIG || g->start[i] == g->start[j]))
				return "GPU given twice";
		}
	}
	return NULL;
}

static void put_value(struct encoder *e, const struct st_grant *g, enum contract_field field,
		      struct buf *value)
{
	char decimal[24];

	switch (field) {
	case CONTRACT_DEVICES:
	case CONTRACT_PLACEMENT:
		for (int i = 0; i < g->count; i++) {
			buf_puts(value, i > 0 ? "," : "");
			if (field == CONTRACT_DEVICES && e->opt != NULL && e->opt->cdi)
				buf_puts(value, CONTRACT_CDI);
			buf_puts(value, e->node->gpus[g->gpu[i]].uuid);
			if (field == CONTRACT_PLACEMENT)
				buf_printf(value, "/%s:%d", g->profile, g->start[i]);
		}
		break;
	case CONTRACT_MEM_REQUEST:
		buf_printf(value, "%dMi", g->request_mib);
		break;
	case CONTRACT_MEM_LIMIT:
		buf_printf(value, "%dMi", g->limit_mib);
		break;
	case CONTRACT_MODE:
		buf_puts(value, st_mode_name(g->mode));
		break;
	case CONTRACT_PORTION:
		buf_puts(value, decimal_format_nano(g->compute_nano, decimal));
		break;
	default: /* not written */
		break;
	}
}

static int put_grant(struct encoder *e, const struct st_grant *g)
{
	const char *fault = grant_fault(e->node, g);
	unsigned fields = fields_of(g);
	char ref[ST_CONTAINER_CAP], key[CONTRACT_KEY_CAP];
	int r = 0;

	if (fault != NULL)
		return err_set(e->err, ERR_INTERNAL, "allocation for container \"%.63s\": wrong %s",
			       g->container, fault);
	contract_ref(e->opt, g->container, fields, ref);
	buf_printf(&e->list, "%s%s=", e->list.len > 0 ? "," : "", ref);
	for (int f = 0; f < CONTRACT_WRITTEN_COUNT && r == 0; f++) {
		struct buf value = BUF_INIT;

		if ((fields & (1U << f)) == 0)
			continue;
		buf_putc(&e->list, contract_fields[f].letter);
		r = contract_key_format(e->opt, (enum contract_field)f, ref, key, e->err);
		if (r != 0)
			break;
		put_value(e, g, (enum contract_field)f, &value);
		r = put(e, key, &value);
		buf_fini(&value);
	}
	return r;
}

/* tessera.dev/allocation: v1;<node>;<digest>;<what it covers> */
static int put_allocation(struct encoder *e)
{
	struct st_kv sorted[PAIRS_MAX];
	char digest[CONTRACT_DIGEST_LEN + 1];
	struct buf value = BUF_INIT;
	const char *list = buf_str(&e->list);
	size_t count = e->out->count;
	int r;

	if (list == NULL)
		return err_set(e->err, ERR_NOMEM, "allocation: no memory");
	memcpy(sorted, e->out->kv, count * sizeof(sorted[0]));
	contract_digest(e->node->name, list, e->list.len, sorted, count, digest);
	for (size_t i = 1; i < count; i++) {
		if (strcmp(sorted[i - 1].key, sorted[i].key) == 0)
			return err_set(e->err, ERR_INTERNAL, "allocation: %s is there twice",
				       sorted[i].key);
	}
	buf_printf(&value, "%s;%s;%s;%s", CONTRACT_VERSION, e->node->name, digest, list);
	r = put(e, CONTRACT_ALLOCATION, &value);
	buf_fini(&value);
	return r;
}

int st_contract_encode(const struct st_cluster *c, const struct st_decision *d,
		       const struct st_contract_options *opt, struct st_annotations *ret,
		       struct err *err)
{
	static const struct st_pod_spec nothing;
	struct st_annotations out = {0};
	struct encoder e = {st_cluster_node(c, d->node), opt, &out, BUF_INIT, err};
	int r = 0;

	if (e.node == NULL || !plain_name(e.node->name) || d->grant_count > ST_ITEMS_MAX)
		return err_set(err, ERR_INTERNAL, "allocation: wrong node or number of containers");
	out.kv = calloc(PAIRS_MAX, sizeof(out.kv[0]));
	if (out.kv == NULL)
		return err_set(err, ERR_NOMEM, "allocation: no memory");
	out.cap = PAIRS_MAX;
	for (int i = 0; i < d->grant_count && r == 0; i++)
		r = put_grant(&e, &d->grants[i]);
	if (r == 0)
		r = put_allocation(&e);
	if (r == 0)
		r = st_contract_check_size(&nothing, &out, err);
	buf_fini(&e.list);
	if (r != 0)
		st_annotations_fini(&out);
	else
		*ret = out;
	return r;
}
