/* Room made by preemption belongs to the pod it was made for, although nothing in the cluster says so
 * until that pod is bound. */
#include <stdlib.h>
#include <string.h>

#include "extender/service_internal.h"

#define EXPECT_MS 2000

static struct ex_nomination **find(struct ex_service *s, const char *uid)
{
	struct ex_nomination **at = &s->nominations;

	while (*at != NULL && strcmp((*at)->uid, uid) != 0)
		at = &(*at)->next;
	return at;
}

static void drop_at(struct ex_service *s, struct ex_nomination **at)
{
	struct ex_nomination *n = *at;

	*at = n->next;
	s->nomination_count--;
	s->expected_count -= n->expected;
	free(n->uid);
	free(n);
}

bool ex_nomination_drop(struct ex_service *s, const char *uid)
{
	struct ex_nomination **at = find(s, uid);

	if (*at == NULL)
		return false;
	drop_at(s, at);
	return true;
}

void ex_nominations_expire(struct ex_service *s)
{
	struct ex_nomination **at = &s->nominations;
	int64_t now;

	if (*at == NULL)
		return;
	now = s->cfg.now(s->cfg.now_ctx);
	while (*at != NULL) {
		if (now - (*at)->seen_ms > ((*at)->expected ? EXPECT_MS : s->cfg.nomination_ms))
			drop_at(s, at);
		else
			at = &(*at)->next;
	}
}

static void add(struct ex_service *s, const char *uid, int32_t priority, uint32_t node,
		const struct st_request *req, bool expected)
{
	struct ex_nomination **at, *n;

	ex_nomination_drop(s, uid);
	n = calloc(1, sizeof(*n));
	if (n != NULL)
		n->uid = strdup(uid);
	if (n == NULL || n->uid == NULL) {
		free(n);
		return;
	}
	n->priority = priority;
	n->expected = expected;
	s->expected_count += expected;
	n->node = node;
	n->req = *req;
	n->seen_ms = s->cfg.now(s->cfg.now_ctx);
	n->next = s->nominations;
	s->nominations = n;
	if (++s->nomination_count <= EX_NOMINATIONS_MAX)
		return;
	for (at = &s->nominations; (*at)->next != NULL; at = &(*at)->next)
		;
	drop_at(s, at);
}

void ex_nominate(struct ex_service *s, const char *uid, int32_t priority, uint32_t node,
		 const struct st_request *req)
{
	add(s, uid, priority, node, req, false);
}

void ex_expect(struct ex_service *s, const char *uid, uint32_t node, const struct st_request *req)
{
	add(s, uid, 0, node, req, true);
}

void ex_expected_drop(struct ex_service *s, const char *uid)
{
	struct ex_nomination **at = find(s, uid);

	if (*at != NULL && (*at)->expected)
		drop_at(s, at);
}

/* Pods of equal priority keep their room too: kube-scheduler's own rule. */
static bool concerns(const struct ex_nomination *n, const char *uid, int32_t priority,
		     uint32_t node, bool expected)
{
	return n->node == node && (n->expected ? expected : n->priority >= priority) &&
	       strcmp(n->uid, uid) != 0;
}

bool ex_nominated(const struct ex_service *s, const char *uid, int32_t priority, uint32_t node,
		  bool expected)
{
	for (const struct ex_nomination *n = s->nominations; n != NULL; n = n->next) {
		if (concerns(n, uid, priority, node, expected))
			return true;
	}
	return false;
}

/* Books the nominated pods on the copy of their node; false where one finds no room: its victims are
 * still there. One that is only expected may have gone elsewhere. */
static bool book_nominated(const struct ex_service *s, struct st_cluster *copy, const char *uid,
			   int32_t priority, uint32_t node, bool expected)
{
	struct bp_chooser how = {.pick = BP_PICK_BEST_FIT};
	struct st_decision d;

	for (const struct ex_nomination *n = s->nominations; n != NULL; n = n->next) {
		struct st_pod_ident ident = {
			.uid = n->uid,
			.ns = "",
			.name = "",
			.priority = n->priority,
			.cpu_milli = n->req.cpu_milli,
			.mem_mib = n->req.mem_mib,
		};

		if (!concerns(n, uid, priority, node, expected))
			continue;
		if ((bp_choose(copy, &how, 0, &n->req, &d, NULL) != BP_OK ||
		     st_cluster_reserve(copy, &ident, &d, NULL) < 0) &&
		    !n->expected)
			return false;
	}
	return true;
}

enum ex_code ex_choose(struct ex_service *s, const struct st_request *req, const char *uid,
		       int32_t priority, uint32_t node, struct st_decision *ret)
{
	struct bp_chooser how = {.pick = BP_PICK_BEST_FIT};
	struct st_pod_ident self = {.uid = uid, .ns = "", .name = ""};
	struct st_decision wanted, other;
	enum ex_code code = EX_NOMINATED;
	struct st_cluster *copy;
	enum bp_verdict v;

	v = po_placer_choose(s->placer, req, node, ex_decision_number(uid), &wanted);
	if (v == BP_OK && req->item_count > 0 &&
	    ex_nominated(s, uid, priority, node, ret == NULL)) {
		copy = po_copy_node(s->c, node, NULL, NULL);
		self.cpu_milli = req->cpu_milli;
		self.mem_mib = req->mem_mib;
		if (copy != NULL && book_nominated(s, copy, uid, priority, node, ret == NULL)) {
			other = wanted;
			other.node = 0;
			if (st_cluster_can_book(copy, &self, &other, true, NULL) == 0 ||
			    bp_choose(copy, &how, 0, req, &other, NULL) == BP_OK)
				code = EX_OK;
		}
		st_cluster_free(copy);
		if (code != EX_OK)
			return code;
		wanted = other;
		wanted.node = node;
	}
	if (v == BP_OK && ret != NULL)
		*ret = wanted;
	return (enum ex_code)v;
}
