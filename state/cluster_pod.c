/* Pods: records, what they hold, decisions, moves. */
#include <stdlib.h>
#include <string.h>

#include "state/cluster_internal.h"

/* ---- the state machine ---- */

enum { MOVE_NEVER = -1, MOVE_RELEASED = -2 };

/* The reply to a bind may come after the watch told of it, and twice; a reply that says "failed"
 * changes nothing that was accepted or seen. */
static const int moves[ST_POD_STATE_COUNT][ST_EVENT_GONE + 1] = {
	[ST_POD_BINDING] = {[ST_EVENT_ACCEPTED] = ST_POD_BOUND,
			    [ST_EVENT_OBSERVED] = ST_POD_OBSERVED,
			    [ST_EVENT_FAILED] = MOVE_RELEASED,
			    [ST_EVENT_GONE] = MOVE_RELEASED},
	[ST_POD_BOUND] = {[ST_EVENT_ACCEPTED] = ST_POD_BOUND,
			  [ST_EVENT_OBSERVED] = ST_POD_OBSERVED,
			  [ST_EVENT_FAILED] = MOVE_NEVER,
			  [ST_EVENT_GONE] = MOVE_RELEASED},
	[ST_POD_OBSERVED] = {[ST_EVENT_ACCEPTED] = ST_POD_OBSERVED,
			     [ST_EVENT_OBSERVED] = ST_POD_OBSERVED,
			     [ST_EVENT_FAILED] = MOVE_NEVER,
			     [ST_EVENT_GONE] = MOVE_RELEASED},
};

static const char *const state_names[ST_POD_STATE_COUNT] = {"binding", "bound", "observed"};
static const char *const event_names[ST_EVENT_GONE + 1] = {"accepted", "observed", "failed",
							   "gone"};

/* ---- records ---- */

int st_pod_ident_check(const struct st_pod_ident *id, struct err *err)
{
	if (id->uid == NULL || id->uid[0] == '\0')
		return err_set(err, ERR_INVALID, "pod %s/%s has no uid",
			       id->ns != NULL ? id->ns : "", id->name != NULL ? id->name : "");
	return 0;
}

static char *put_string(char **at, const char *s)
{
	size_t size = s != NULL ? strlen(s) + 1 : 1;
	char *to = *at;

	if (s != NULL)
		memcpy(to, s, size);
	else
		to[0] = '\0';
	*at += size;
	return to;
}

static size_t string_size(const char *s)
{
	return s != NULL ? strlen(s) + 1 : 1;
}

/* A record that the table of pods knows and no node does. NULL: no memory. */
struct pod_slot *st_pod_slot_new(struct st_cluster *c, const struct st_pod_ident *id, uint8_t cap)
{
	size_t grants = cap * sizeof(struct st_grant);
	struct pod_slot *p = malloc(sizeof(*p) + grants + string_size(id->uid) +
				    string_size(id->ns) + string_size(id->name));
	char *at;

	if (p == NULL)
		return NULL;
	memset(p, 0, sizeof(*p));
	at = (char *)p->tail + grants;
	p->pub.uid = put_string(&at, id->uid);
	p->pub.ns = put_string(&at, id->ns);
	p->pub.name = put_string(&at, id->name);
	p->pub.node = ST_NONE;
	p->tail_cap = cap;
	HASH_ADD_KEYPTR(hh, c->pods, p->pub.uid, strlen(p->pub.uid), p);
	if (!HASH_ADDED(p, hh)) {
		free(p);
		return NULL;
	}
	return p;
}

static void slot_free(struct st_cluster *c, struct pod_slot *p)
{
	HASH_DEL(c->pods, p);
	free(p->more);
	free(p);
}

struct st_grant *st_pod_grants(struct pod_slot *p)
{
	return p->more != NULL ? p->more : p->tail;
}

void st_pod_ident_put(struct pod_slot *p, const struct st_pod_ident *id)
{
	p->pub.priority = id->priority;
	p->pub.deleting = id->deleting;
	p->pub.memory_bound = id->memory_bound;
	p->pub.cpu_milli = st_host_clamp(id->cpu_milli);
	p->pub.mem_mib = st_host_clamp(id->mem_mib);
}

/* ---- on and off a node ---- */

void st_host_add(struct node_slot *n, const struct pod_slot *p, int sign)
{
	n->cpu_used += sign * p->pub.cpu_milli;
	n->mem_used += sign * p->pub.mem_mib;
	n->pub.cpu_left_milli = n->pub.cpu_milli - n->cpu_used;
	n->pub.mem_left_mib = n->pub.mem_mib - n->mem_used;
}

void st_pod_link(struct node_slot *n, struct pod_slot *p)
{
	p->pub.node = n->pub.id;
	p->prev = n->last;
	p->next = NULL;
	if (n->last != NULL)
		n->last->next = p;
	else
		n->first = p;
	n->last = p;
	n->pod_count++;
	n->pub.pods++;
	st_host_add(n, p, 1);
}

static void unlink_pod(struct node_slot *n, struct pod_slot *p)
{
	if (p->prev != NULL)
		p->prev->next = p->next;
	else
		n->first = p->next;
	if (p->next != NULL)
		p->next->prev = p->prev;
	else
		n->last = p->prev;
	n->pod_count--;
	n->pub.pods--;
	st_host_add(n, p, -1);
	p->prev = p->next = NULL;
	p->pub.node = ST_NONE;
}

/* The pod holds what is stored of it. */
void st_pod_hold(struct node_slot *n, struct pod_slot *p)
{
	p->pub.grants = st_pod_grants(p);
	p->pub.grant_count = p->stored;
	n->assumed += p->pub.foreign;
}

/* The pod holds nothing more; what it wants stays stored. */
void st_pod_drop(struct node_slot *n, struct pod_slot *p)
{
	if (p->pub.fenced)
		return;
	st_grants_unbook(n, p->pub.grants, p->pub.grant_count, p->pub.memory_bound);
	n->assumed -= p->pub.foreign;
	p->pub.grant_count = 0;
}

void st_pod_set_fenced(struct node_slot *n, struct pod_slot *p, bool fenced)
{
	if (fenced && !p->pub.fenced)
		n->pub.fences++;
	else if (!fenced && p->pub.fenced)
		n->pub.fences--;
	p->pub.fenced = fenced;
}

void st_pod_detach(struct node_slot *n, struct pod_slot *p)
{
	st_pod_drop(n, p);
	st_pod_set_fenced(n, p, false);
	unlink_pod(n, p);
}

void st_node_after_release(struct st_cluster *c, struct node_slot *n)
{
	st_node_settle(c, n);
	st_node_trim(n);
	st_node_touch(c, n);
}

/* ---- decisions ---- */

static int host_fits(const struct st_node *n, const struct st_pod_ident *pod, struct err *err)
{
	if (pod->cpu_milli > 0 && pod->cpu_milli > n->cpu_left_milli)
		return err_set(err, ERR_NO_ROOM,
			       "node %s has %lld of %lld milli-CPU left, %lld asked for", n->name,
			       (long long)n->cpu_left_milli, (long long)n->cpu_milli,
			       (long long)pod->cpu_milli);
	if (pod->mem_mib > 0 && pod->mem_mib > n->mem_left_mib)
		return err_set(err, ERR_NO_ROOM,
			       "node %s has %lld of %lld MiB host memory left, %lld asked for",
			       n->name, (long long)n->mem_left_mib, (long long)n->mem_mib,
			       (long long)pod->mem_mib);
	if (n->pods_max > 0 && n->pods >= n->pods_max)
		return err_set(err, ERR_NO_ROOM, "node %s has %d of at most %d pods", n->name,
			       n->pods, n->pods_max);
	return 0;
}

static int decision_try(const struct st_cluster *c, const struct st_pod_ident *pod,
			const struct st_decision *d, bool check_host,
			struct gpu_book books[ST_GPUS_MAX], struct err *err)
{
	const struct node_slot *n = st_node_slot(c, d->node);
	int r = 0;

	if (n == NULL || !n->pub.present)
		return err_set(err, ERR_CONFLICT, "node %s is gone",
			       n != NULL ? n->pub.name : "of the decision");
	if (n->pub.unready)
		return err_set(err, ERR_CONFLICT, "node %s is not ready%s%s", n->pub.name,
			       n->pub.why_unready != NULL ? ": " : "",
			       n->pub.why_unready != NULL ? n->pub.why_unready : "");
	if (n->pub.fences > 0)
		return err_set(err, ERR_CONFLICT, "node %s has %u pods of unknown allocation",
			       n->pub.name, n->pub.fences);
	if (check_host)
		r = host_fits(&n->pub, pod, err);
	if (r < 0)
		return r;
	return st_grants_try(c, n, d->grants, d->grant_count, pod->memory_bound, BOOK_NEW, books,
			     err);
}

int st_cluster_can_book(const struct st_cluster *c, const struct st_pod_ident *pod,
			const struct st_decision *d, bool check_host, struct err *err)
{
	struct gpu_book books[ST_GPUS_MAX];

	return decision_try(c, pod, d, check_host, books, err);
}

int st_cluster_reserve(struct st_cluster *c, const struct st_pod_ident *pod,
		       const struct st_decision *d, struct err *err)
{
	struct gpu_book books[ST_GPUS_MAX];
	struct node_slot *n;
	struct pod_slot *p;
	int r = st_pod_ident_check(pod, err);

	if (r < 0)
		return r;
	if (st_pod_slot_find(c, pod->uid) != NULL)
		return err_set(err, ERR_EXISTS, "pod %s is booked already", pod->uid);
	r = decision_try(c, pod, d, false, books, err);
	if (r < 0)
		return r;
	p = st_pod_slot_new(c, pod, d->grant_count);
	if (p == NULL)
		return err_set(err, ERR_NOMEM, "no memory for pod %s", pod->uid);
	n = c->nodes[d->node];
	st_pod_ident_put(p, pod);
	p->pub.state = ST_POD_BINDING;
	p->stored = d->grant_count;
	memcpy(p->tail, d->grants, d->grant_count * sizeof(*d->grants));
	st_pod_link(n, p);
	st_books_commit(n, books);
	st_pod_hold(n, p);
	st_node_touch(c, n);
	return 0;
}

int st_cluster_pod_move(struct st_cluster *c, const char *uid, enum st_pod_event ev,
			struct err *err)
{
	struct pod_slot *p = st_pod_slot_find(c, uid);
	struct node_slot *n;
	int to;

	if (p == NULL)
		return err_set(err, ERR_NOT_FOUND, "no pod %s", uid);
	if ((unsigned)ev > ST_EVENT_GONE)
		return err_set(err, ERR_INVALID, "pod %s: event %u", uid, (unsigned)ev);
	to = moves[p->pub.state][ev];
	if (to == MOVE_NEVER)
		return err_set(err, ERR_CONFLICT, "pod %s is %s: %s is no move", uid,
			       state_names[p->pub.state], event_names[ev]);
	if (to != MOVE_RELEASED) {
		p->pub.state = (uint8_t)to;
		return 0;
	}
	n = c->nodes[p->pub.node];
	st_pod_detach(n, p);
	slot_free(c, p);
	st_node_after_release(c, n);
	return 0;
}
