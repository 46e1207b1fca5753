/* Rows that come and go, and what goes with them. */
#include <stdlib.h>
#include <string.h>

#include "enforcer/nri_plugin_internal.h"

struct en_holding **plugin_rows(struct en_plugin *p, size_t *ret_count)
{
	struct en_holding **rows, *h = NULL;
	size_t n = 0;

	pthread_mutex_lock(&p->lock);
	rows = calloc(en_ledger_count(p->ledger) + 1, sizeof(struct en_holding *));
	while (rows != NULL && (h = en_ledger_next(p->ledger, h)) != NULL) {
		rows[n] = en_holding_dup(h);
		n += rows[n] != NULL;
	}
	pthread_mutex_unlock(&p->lock);
	*ret_count = n;
	return rows;
}

void en_plugin_each(struct en_plugin *p, void (*fn)(void *ctx, const struct en_holding *h),
		    void *ctx)
{
	size_t count_of_rows;
	struct en_holding **rows = plugin_rows(p, &count_of_rows);

	for (size_t i = 0; i < count_of_rows; i++) {
		fn(ctx, rows[i]);
		en_holding_free(rows[i]);
	}
	free(rows);
}

/* ---- what goes with a row ---- */

void plugin_unmake(struct en_plugin *p, const struct en_holding *h)
{
	if (h->own_namespace && p->agent.namespace_drop != NULL)
		p->agent.namespace_drop(p->agent.ctx, h->id);
	if (h->grant.kind == ST_KIND_MIG && p->agent.instances_drop != NULL)
		p->agent.instances_drop(p->agent.ctx, h);
}

/* Its row is gone: a container made again has the same instances, and another namespace. */
static void gone(struct en_plugin *p, struct en_holding *take_h)
{
	plugin_limits_clear(p, take_h);
	plugin_unmake(p, take_h);
	en_holding_free(take_h);
}

int plugin_row_put(struct en_plugin *p, const struct en_holding *h, struct err *err)
{
	struct en_holding *old = NULL, *at = NULL;
	int rc;

	pthread_mutex_lock(&p->lock);
	while (old == NULL && (at = en_ledger_next(p->ledger, at)) != NULL) {
		if (strcmp(at->pod_uid, h->pod_uid) == 0 &&
		    strcmp(at->container, h->container) == 0 && strcmp(at->id, h->id) != 0)
			old = en_holding_dup(at); /* without memory: a sweep finds what is left */
	}
	rc = en_ledger_put(p->ledger, h, err);
	pthread_mutex_unlock(&p->lock);
	if (rc == 0 && old != NULL)
		gone(p, old);
	else
		en_holding_free(old);
	return rc;
}

void plugin_rows_replace(struct en_plugin *p, struct en_ledger *take_l)
{
	struct en_holding *h = NULL, **list;
	struct en_ledger *old;
	size_t count = 0;

	pthread_mutex_lock(&p->lock);
	old = p->ledger;
	p->ledger = take_l;
	list = calloc(en_ledger_count(old) + 1, sizeof(struct en_holding *));
	while (list != NULL && (h = en_ledger_next(old, h)) != NULL) {
		/* One that has not begun may be in the making: some runtimes do not list it then. */
		if ((h->pid != 0 || h->stopped) && en_ledger_find(take_l, h->id) == NULL &&
		    (list[count] = en_holding_dup(h)) != NULL)
			count++;
	}
	pthread_mutex_unlock(&p->lock);
	for (size_t i = 0; i < count; i++)
		gone(p, list[i]);
	free(list);
	en_ledger_free(old);
}
