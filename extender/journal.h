/* The journal: an append-only file with one JSON object a line, each with a check sum of its own. It
 * is the durable store of an embedded cluster: the cluster file plus the journal are the state.
 *
 *	{"v":1,"event":"bind","uid":...,"ns":...,"name":...,"node":...,"priority":0,"cpu_milli":0,
 *	 "mem_mib":0,"memory_bound":false,"containers":[...],"annotations":{...},
 *	 "request":{...},"crc":"0123abcd"}
 *	{"v":1,"event":"release","uid":...,"crc":"0123abcd"}
 *
 * crc is CRC-32 (zlib's) of the line up to the comma before it. request is there where the bind counted
 * into the workload. */
#ifndef TESSERA_EXTENDER_JOURNAL_H
#define TESSERA_EXTENDER_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "state/cluster.h"
#include "state/contract.h"
#include "state/spec.h"

#define EX_JOURNAL_MAX_BYTES ((size_t)4 << 30)

/* ---- lines ---- */

/* Appends the record of a bind, its newline included. Containers are those of the decision. learned
 * may be NULL. */
void ex_journal_put_bind(struct buf *line, const struct st_pod_ident *pod, const char *node,
			 const struct st_decision *d, const struct st_annotations *annotations,
			 const struct st_request *learned);
void ex_journal_put_release(struct buf *line, const char *uid);

/* Called for each record in order; all pointers last for the call. A negative return ends it. */
struct ex_journal_reader {
	/* pod: names, priority, node, containers and annotations; ident: what it takes; learned: what
	 * it asked for, where that was recorded, else NULL. */
	int (*bind)(void *ctx, const struct st_pod_spec *pod, const struct st_pod_ident *ident,
		    const struct st_request *learned, struct err *err);
	int (*release)(void *ctx, const char *uid, struct err *err);
	void *ctx;
};

/* Reads the text of a journal. *ret_good: bytes up to the end of the last whole line, less than len
 * when the last write was torn. ERR_INVALID names the line and what is wrong with it; a callback's
 * error comes back with the line before it. */
int ex_journal_read(const char *text, size_t len, const struct ex_journal_reader *r,
		    size_t *ret_good, struct err *err);

/* ---- the file ---- */

struct ex_journal;

/* A line to be written. Filled by the caller and left alone until done is called. */
struct ex_journal_entry {
	const char *line;
	size_t len;
	void (*done)(struct ex_journal_entry *e, int rc, const struct err *err);
	struct ex_journal_entry *next;
};

/* How each line begins. */
#define EX_JOURNAL_LINE_START "{\"v\":1,\"event\":\""

/* Opens or makes the file, reads what is in it through r, cuts off a torn last line (*ret_torn: its
 * bytes; text that is not the start of a record is ERR_INVALID and stays) and starts the
 * writer's thread. sync: a line is done when it is on the disk.
 * ERR_CONFLICT: another process has it open. ERR_IO, ERR_TOO_LARGE, ERR_NOMEM, ex_journal_read(). */
int ex_journal_open(const char *path, bool sync, const struct ex_journal_reader *r,
		    struct ex_journal **ret, size_t *ret_torn, struct err *err);
/* Would it be opened, beside a process that has it open perhaps? Reads it through r and changes nothing; where
 * there is none, its folder must let one be made. Errors as above. */
int ex_journal_check(const char *path, const struct ex_journal_reader *r, struct err *err);
/* Writes what was submitted, stops the thread, closes. NULL is allowed. */
void ex_journal_close(struct ex_journal *j);

/* Queues the entry; lines are written in the order of the calls, many by one write. done is called
 * from the writer's thread, in that order: 0, or ERR_IO: then the line is not in the file. After an
 * error that could not be undone every later line fails too. */
void ex_journal_submit(struct ex_journal *j, struct ex_journal_entry *e);
/* Submits and waits. */
int ex_journal_append(struct ex_journal *j, const char *line, size_t len, struct err *err);
/* True after a line could not be written, until one could. Any thread. */
bool ex_journal_broken(const struct ex_journal *j);

#endif
