#include "extender/recent.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

struct entry {
	struct ex_recent_pod pod;
	struct entry *newer, *older;
	UT_hash_handle hh;
	char text[]; /* uid, namespace, name */
};

struct ex_recent {
	struct entry *by_uid, *newest, *oldest;
	size_t max;
};

struct ex_recent *ex_recent_new(size_t max)
{
	struct ex_recent *r = calloc(1, sizeof(*r));

	if (r != NULL)
		r->max = max;
	return r;
}

static void unlink_entry(struct ex_recent *r, struct entry *e)
{
	*(e->newer != NULL ? &e->newer->older : &r->newest) = e->older;
	*(e->older != NULL ? &e->older->newer : &r->oldest) = e->newer;
}

static void link_newest(struct ex_recent *r, struct entry *e)
{
	e->newer = NULL;
	e->older = r->newest;
	*(r->newest != NULL ? &r->newest->newer : &r->oldest) = e;
	r->newest = e;
}

static void drop(struct ex_recent *r, struct entry *e)
{
	HASH_DEL(r->by_uid, e);
	unlink_entry(r, e);
	free(e);
}

void ex_recent_free(struct ex_recent *r)
{
	if (r == NULL)
		return;
	while (r->newest != NULL)
		drop(r, r->newest);
	free(r);
}

void ex_recent_extend(struct ex_recent *r, size_t more)
{
	r->max += more;
}

size_t ex_recent_count(const struct ex_recent *r)
{
	return HASH_COUNT(r->by_uid);
}

bool ex_recent_full(const struct ex_recent *r)
{
	return HASH_COUNT(r->by_uid) >= r->max;
}

static struct entry *find(const struct ex_recent *r, const char *uid)
{
	struct entry *e;

	HASH_FIND(hh, r->by_uid, uid, strlen(uid), e);
	return e;
}

bool ex_recent_has(const struct ex_recent *r, const char *uid)
{
	return find(r, uid) != NULL;
}

int ex_recent_put(struct ex_recent *r, const struct st_request *req,
		  const struct st_pod_ident *ident, struct err *err)
{
	size_t uid = strlen(ident->uid) + 1, ns = strlen(ident->ns) + 1;
	size_t name = strlen(ident->name) + 1;
	struct entry *old = find(r, ident->uid), *e;

	e = malloc(sizeof(*e) + uid + ns + name);
	if (e == NULL)
		return err_set(err, ERR_NOMEM, "out of memory for pod %s", ident->name);
	e->pod = (struct ex_recent_pod){.req = *req, .ident = *ident};
	e->pod.ident.uid = memcpy(e->text, ident->uid, uid);
	e->pod.ident.ns = memcpy(e->text + uid, ident->ns, ns);
	e->pod.ident.name = memcpy(e->text + uid + ns, ident->name, name);
	if (old != NULL) {
		e->pod.learned = old->pod.learned;
		e->pod.arrived = old->pod.arrived;
		e->pod.asked = old->pod.asked;
		drop(r, old);
	}
	HASH_ADD_KEYPTR(hh, r->by_uid, e->pod.ident.uid, uid - 1, e);
	if (!HASH_ADDED(e, hh)) {
		free(e);
		return err_set(err, ERR_NOMEM, "out of memory for pod %s", ident->name);
	}
	link_newest(r, e);
	while (HASH_COUNT(r->by_uid) > r->max)
		drop(r, r->oldest);
	return 0;
}

struct ex_recent_pod *ex_recent_get(struct ex_recent *r, const char *uid)
{
	struct entry *e = find(r, uid);

	if (e == NULL)
		return NULL;
	unlink_entry(r, e);
	link_newest(r, e);
	return &e->pod;
}

bool ex_recent_drop(struct ex_recent *r, const char *uid)
{
	struct entry *e = find(r, uid);

	if (e != NULL)
		drop(r, e);
	return e != NULL;
}
