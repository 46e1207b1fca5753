#include "extender/absent.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

#define SAID_MAX 19 /* a line each; the rest is a number, in the last line the log lets pass */

struct ex_absent {
	UT_hash_handle hh;
	const char *node; /* behind the uid */
	char uid[];
};

void ex_absent_drop(struct ex_absent **a, const char *uid)
{
	struct ex_absent *e = NULL;

	HASH_FIND_STR(*a, uid, e);
	if (e == NULL)
		return;
	HASH_DEL(*a, e);
	free(e);
}

int ex_absent_put(struct ex_absent **a, const char *uid, const char *node, struct err *err)
{
	size_t uid_size = strlen(uid) + 1, node_size = strlen(node) + 1;
	struct ex_absent *e = calloc(1, sizeof(*e) + uid_size + node_size);

	ex_absent_drop(a, uid);
	if (e != NULL) {
		memcpy(e->uid, uid, uid_size);
		memcpy(e->uid + uid_size, node, node_size);
		e->node = e->uid + uid_size;
		HASH_ADD_STR(*a, uid, e);
		if (HASH_ADDED(e, hh))
			return 0;
	}
	free(e);
	return err_set(err, ERR_NOMEM, "out of memory");
}

static int by_node(const struct ex_absent *a, const struct ex_absent *b)
{
	return strcmp(a->node, b->node);
}

static void tell(struct log *log, const char *node, size_t pods, const char *source)
{
	char quoted[512];

	log_event(log, LOG_LEVEL_WARN, "node-missing", "node=%s pods=%zu source=%s action=%s",
		  log_quote(node, quoted, sizeof(quoted)), pods, source,
		  "\"left out: the cluster file does not have the node\"");
}

size_t ex_absent_tell(struct ex_absent **a, struct log *log, const char *source)
{
	struct ex_absent *e, *next;
	size_t nodes = 0, pods = 0;

	HASH_SORT(*a, by_node);
	for (e = *a; e != NULL; e = next) {
		next = e->hh.next;
		pods++;
		if (next == NULL || strcmp(next->node, e->node) != 0) {
			if (++nodes <= SAID_MAX)
				tell(log, e->node, pods, source);
			pods = 0;
		}
	}
	if (nodes > SAID_MAX)
		log_event(log, LOG_LEVEL_WARN, "node-missing", "more=%zu source=%s",
			  nodes - SAID_MAX, source);
	while ((e = *a) != NULL) {
		HASH_DEL(*a, e); /* NOLINT(clang-analyzer-unix.Malloc): uthash is right */
		free(e);
	}
	return nodes;
}
