#include "state/cluster.h"

#include <stdlib.h>
#include <string.h>

#include "base/arith.h"
#include "state/cluster_internal.h"

struct st_cluster *st_cluster_new(const struct st_config *cfg)
{
	static const struct st_config defaults = ST_CONFIG_DEFAULT;
	struct st_cluster *c = calloc(1, sizeof(*c));

	if (c == NULL)
		return NULL;
	c->cfg = cfg != NULL ? *cfg : defaults;
	c->products = strpool_new();
	if (c->products == NULL || st_log_grow(c, 0) < 0) {
		st_cluster_free(c);
		return NULL;
	}
	return c;
}

void st_cluster_free(struct st_cluster *c)
{
	struct geometry_slot *g;
	struct product_slot *p;
	struct uuid_slot *u;
	struct pod_slot *pod;

	if (c == NULL)
		return;
	/* HASH_CLEAR drops the tables only: the elements stay linked in their order. */
	pod = c->pods;
	HASH_CLEAR(hh, c->pods);
	for (struct pod_slot *next; pod != NULL; pod = next) {
		next = pod->hh.next;
		free(pod->more);
		free(pod);
	}
	g = c->geometries;
	HASH_CLEAR(hh, c->geometries);
	for (struct geometry_slot *next; g != NULL; g = next) {
		next = g->hh.next;
		free(g);
	}
	p = c->product_geometries;
	HASH_CLEAR(hh, c->product_geometries);
	for (struct product_slot *next; p != NULL; p = next) {
		next = p->hh.next;
		free(p);
	}
	u = c->uuids;
	HASH_CLEAR(hh, c->uuids);
	for (struct uuid_slot *next; u != NULL; u = next) {
		next = u->hh.next;
		free(u);
	}
	HASH_CLEAR(hh, c->by_name);
	HASH_CLEAR(hh_rank, c->by_rank);
	for (uint32_t i = 0; i < c->node_count; i++) {
		free(c->nodes[i]->pub.name);
		free(c->nodes[i]->pub.why_unready);
		free(c->nodes[i]->block);
		free(c->nodes[i]);
	}
	free(c->nodes);
	free(c->log);
	strpool_free(c->products);
	free(c);
}

const struct st_config *st_cluster_config(const struct st_cluster *c)
{
	return &c->cfg;
}

struct strpool *st_cluster_products(const struct st_cluster *c)
{
	return c->products;
}

int64_t st_host_clamp(int64_t v)
{
	return arith_max(arith_min(v, ST_HOST_MAX), -ST_HOST_MAX);
}

/* ---- lookup ---- */

uint32_t st_cluster_node_find(const struct st_cluster *c, const char *name, size_t len)
{
	struct node_slot *n;

	HASH_FIND(hh, c->by_name, name, len, n);
	return n != NULL ? n->pub.id : ST_NONE;
}

const struct st_node *st_cluster_node(const struct st_cluster *c, uint32_t id)
{
	const struct node_slot *n = st_node_slot(c, id);

	return n != NULL ? &n->pub : NULL;
}

uint32_t st_cluster_node_count(const struct st_cluster *c)
{
	return c->node_count;
}

struct pod_slot *st_pod_slot_find(const struct st_cluster *c, const char *uid)
{
	struct pod_slot *p;

	HASH_FIND(hh, c->pods, uid, strlen(uid), p);
	return p;
}

const struct st_pod *st_cluster_pod_find(const struct st_cluster *c, const char *uid)
{
	const struct pod_slot *p = st_pod_slot_find(c, uid);

	return p != NULL ? &p->pub : NULL;
}

size_t st_cluster_pod_count(const struct st_cluster *c)
{
	return HASH_COUNT(c->pods);
}

/* The public part is the first member. */
static const struct pod_slot *slot_of(const struct st_pod *p)
{
	return (const struct pod_slot *)p;
}

const struct st_pod *st_cluster_pod_next(const struct st_cluster *c, const struct st_pod *prev)
{
	const struct pod_slot *next = prev != NULL ? slot_of(prev)->hh.next : c->pods;

	return next != NULL ? &next->pub : NULL;
}

const struct st_pod *st_cluster_node_pod_next(const struct st_cluster *c, uint32_t node,
					      const struct st_pod *prev)
{
	const struct node_slot *n = st_node_slot(c, node);
	const struct pod_slot *next;

	if (n == NULL)
		return NULL;
	next = prev != NULL ? slot_of(prev)->next : n->first;
	return next != NULL ? &next->pub : NULL;
}

/* ---- change log ---- */

uint64_t st_cluster_log_begin(const struct st_cluster *c)
{
	return c->log_begin;
}

uint64_t st_cluster_log_end(const struct st_cluster *c)
{
	return c->log_end;
}

uint32_t st_cluster_log_at(const struct st_cluster *c, uint64_t i)
{
	return i >= c->log_begin && i < c->log_end ? c->log[i & (c->log_cap - 1)] : ST_NONE;
}

int st_log_grow(struct st_cluster *c, uint32_t node_count)
{
	uint64_t cap = c->log_cap != 0 ? c->log_cap : ST_LOG_CAP_MIN;
	uint32_t *log;

	while (cap < 4 * (uint64_t)node_count)
		cap *= 2;
	if (cap == c->log_cap)
		return 0;
	log = calloc(cap, sizeof(*log));
	if (log == NULL)
		return ERR_NOMEM;
	for (uint64_t i = c->log_begin; i < c->log_end; i++)
		log[i & (cap - 1)] = c->log[i & (c->log_cap - 1)];
	free(c->log);
	c->log = log;
	c->log_cap = cap;
	return 0;
}

void st_node_touch(struct st_cluster *c, struct node_slot *n)
{
	n->pub.version++;
	c->log[c->log_end++ & (c->log_cap - 1)] = n->pub.id;
	if (c->log_end - c->log_begin > c->log_cap)
		c->log_begin = c->log_end - c->log_cap;
}

/* ---- products ---- */

/* One alternative of an expression against a name; driver and labels write blanks differently. */
static bool same_product(const char *alt, size_t len, const char *product)
{
	for (; len > 0 && *product != '\0'; len--, alt++, product++)
		if (*alt != *product &&
		    !((*alt == ' ' || *alt == '-') && (*product == ' ' || *product == '-')))
			return false;
	return len == 0 && *product == '\0';
}

bool st_product_accepts(const char *expr, const char *product)
{
	if (expr[0] == '\0')
		return true;
	if (product == NULL)
		return false;
	for (;;) {
		size_t len = strcspn(expr, "|"), from = strspn(expr, " "), to = len;

		while (to > from && expr[to - 1] == ' ')
			to--;
		if (to > from && same_product(expr + from, to - from, product))
			return true;
		if (expr[len] == '\0')
			return false;
		expr += len + 1;
	}
}
