#include "enforcer/apply_ledger.h"

#include <stdlib.h>
#include <string.h>

#include "enforcer/apply_internal.h"

/* A few dozen rows: a list is enough. */
struct row {
	struct en_holding h; /* first: rows are found by it */
	struct row *next;
	char text[]; /* its strings */
};

struct en_ledger {
	struct row *rows;
	size_t count;
};

struct en_ledger *en_ledger_new(void)
{
	return calloc(1, sizeof(struct en_ledger));
}

static void drop_at(struct en_ledger *l, struct row **at)
{
	struct row *r = *at;

	*at = r->next;
	l->count--;
	free(r);
}

void en_ledger_free(struct en_ledger *l)
{
	if (l == NULL)
		return;
	while (l->rows != NULL)
		drop_at(l, &l->rows);
	free(l);
}

static const char *copy_text(char **at, const char *s)
{
	size_t size = strlen(s) + 1;
	char *copy = memcpy(*at, s, size);

	*at += size;
	return copy;
}

static struct row *row_new(const struct en_holding *h)
{
	size_t size = strlen(h->id) + strlen(h->pod_id) + strlen(h->pod_uid) + strlen(h->ns) +
		      strlen(h->pod) + strlen(h->container) + 6;
	struct row *r = malloc(sizeof(*r) + size);
	char *at;

	if (r == NULL)
		return NULL;
	r->h = *h;
	r->next = NULL;
	at = r->text;
	r->h.id = copy_text(&at, h->id);
	r->h.pod_id = copy_text(&at, h->pod_id);
	r->h.pod_uid = copy_text(&at, h->pod_uid);
	r->h.ns = copy_text(&at, h->ns);
	r->h.pod = copy_text(&at, h->pod);
	r->h.container = copy_text(&at, h->container);
	return r;
}

struct en_holding *en_holding_dup(const struct en_holding *h)
{
	struct row *r = row_new(h);

	return r != NULL ? &r->h : NULL;
}

void en_holding_free(struct en_holding *h)
{
	free(h); /* the first member of its row */
}

static bool same_place(const struct en_holding *a, const struct en_holding *b)
{
	return strcmp(a->id, b->id) == 0 ||
	       (strcmp(a->pod_uid, b->pod_uid) == 0 && strcmp(a->container, b->container) == 0);
}

int en_ledger_put(struct en_ledger *l, const struct en_holding *h, struct err *err)
{
	struct row *r = row_new(h), **at = &l->rows;

	if (r == NULL)
		return err_set(err, ERR_NOMEM, "ledger: no memory");
	while (*at != NULL) {
		if (same_place(&(*at)->h, &r->h))
			drop_at(l, at);
		else
			at = &(*at)->next;
	}
	*at = r;
	l->count++;
	return 0;
}

void en_ledger_drop(struct en_ledger *l, const char *id)
{
	for (struct row **at = &l->rows; *at != NULL; at = &(*at)->next) {
		if (strcmp((*at)->h.id, id) == 0) {
			drop_at(l, at);
			return;
		}
	}
}

struct en_holding *en_ledger_find(struct en_ledger *l, const char *id)
{
	for (struct row *r = l->rows; r != NULL; r = r->next) {
		if (strcmp(r->h.id, id) == 0)
			return &r->h;
	}
	return NULL;
}

struct en_holding *en_ledger_next(struct en_ledger *l, const struct en_holding *prev)
{
	const struct row *at = (const void *)prev;
	struct row *next = at != NULL ? at->next : l->rows;

	return next != NULL ? &next->h : NULL;
}

size_t en_ledger_count(const struct en_ledger *l)
{
	return l->count;
}

static void use_gpu(struct en_node_gpu *g, const struct st_grant *grant, int i)
{
	if (g->mode == ST_MODE_FREE)
		g->mode = grant->mode;
	g->clients++;
	if (grant->kind == ST_KIND_MIG) {
		g->mig_units |= apply_mig_units(g, grant->profile, grant->start[i]);
	} else if (grant->kind == ST_KIND_SHARE) {
		g->request_mib += grant->request_mib;
		g->limit_mib += grant->limit_mib;
		g->compute_nano += grant->compute_nano;
	}
}

void en_ledger_use(struct en_ledger *l, const char *except_pod_uid, struct en_node *node)
{
	for (size_t k = 0; k < node->gpu_count; k++) {
		struct en_node_gpu *g = &node->gpus[k];

		g->mode = ST_MODE_FREE;
		g->request_mib = g->limit_mib = g->compute_nano = 0;
		g->clients = g->mig_units = 0;
		for (const struct row *r = l->rows; r != NULL; r = r->next) {
			const struct st_grant *grant = &r->h.grant;

			if (r->h.stopped ||
			    (except_pod_uid != NULL && strcmp(r->h.pod_uid, except_pod_uid) == 0))
				continue;
			for (int i = 0; i < grant->count; i++) {
				if (strcmp(r->h.gpus[i], g->uuid) == 0)
					use_gpu(g, grant, i);
			}
		}
	}
}
