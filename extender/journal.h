/* The journal: an append-only file with one JSON object a line, each with a check sum of all lines up to
 * it. It is the durable store of an embedded cluster: the cluster file plus the journal are the state.
 *
 *	{"v":2,"event":"bind","uid":...,"ns":...,"name":...,"node":...,"priority":0,"cpu_milli":0,
 *	 "mem_mib":0,"memory_bound":false,"containers":[...],"annotations":{...},
 *	 "request":{...},"crc":"0123abcd"}
 *	{"v":2,"event":"release","uid":...,"crc":"0123abcd"}
 *
 * crc is CRC-32 (zlib's) of all lines so far, each up to the comma before its own crc: a line that is
 * changed, gone, twice or elsewhere makes the next one wrong, for a bind that nobody knows of any more
 * is a GPU given twice. Lines of version 1 are read, too: theirs is of the line alone, and the next goes
 * on from it. What no check sum in the file can tell is that its end is gone, as in an old copy.
 *
 * request is there where the bind counted into the workload.
 *
 * The file does not grow for ever: from a certain size on it is written anew without the binds whose pods
 * were released, and the new one takes its place. The newest lines stay as they are, for the workload is
 * learned from them at the next start. */
#ifndef TESSERA_EXTENDER_JOURNAL_H
#define TESSERA_EXTENDER_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "state/cluster.h"
#include "state/contract.h"
#include "state/spec.h"

#define EX_JOURNAL_MAX_BYTES ((size_t)4 << 30)

/* ---- lines ---- */

/* Append the record of a bind or release without its check sum, which comes with its place in the file
 * (ex_journal_seal()). Containers are those of the decision. learned may be NULL. */
void ex_journal_put_bind(struct buf *line, const struct st_pod_ident *pod, const char *node,
			 const struct st_decision *d, const struct st_annotations *annotations,
			 const struct st_request *learned);
void ex_journal_put_release(struct buf *line, const char *uid);

/* How each line begins, but for the version's digit, and how long the check sum behind a record is. */
#define EX_JOURNAL_LINE_START "{\"v\":2,\"event\":\""
#define EX_JOURNAL_START_LEN (sizeof(EX_JOURNAL_LINE_START) - 1)
#define EX_JOURNAL_TAIL_LEN (sizeof(",\"crc\":\"01234567\"}") - 1)

/* Appends a record as a line: its check sum and newline with it. *chain: the check sum of the line
 * before, 0 for the first one; it becomes that of this line. */
void ex_journal_seal(struct buf *text, const char *record, size_t len, uint32_t *chain);
/* Does the text begin as a record does, as far as it goes? */
bool ex_journal_starts(const char *text, size_t len);
/* Is the line (without its newline) the one that comes behind *chain? Moves it on, or ERR_INVALID. */
int ex_journal_line_check(const char *line, size_t len, uint32_t *chain, struct err *err);

/* Called for each record in order; all pointers last for the call. A negative return ends it. */
struct ex_journal_reader {
	/* pod: names, priority, node, containers and annotations; ident: what it takes; learned: what
	 * it asked for, where that was recorded, else NULL. */
	int (*bind)(void *ctx, const struct st_pod_spec *pod, const struct st_pod_ident *ident,
		    const struct st_request *learned, struct err *err);
	int (*release)(void *ctx, const char *uid, struct err *err);
	void *ctx;
};

struct ex_journal_end {
	size_t good; /* bytes up to the end of the last whole line: less than all when the last write was torn */
	uint32_t chain; /* of that line */
};
/* Reads the text of a journal. ERR_INVALID names the line and what is wrong with it; a callback's error
 * comes back with the line before it. */
int ex_journal_read(const char *text, size_t len, const struct ex_journal_reader *r,
		    struct ex_journal_end *ret, struct err *err);

/* Appends the lines of text (whole ones), without those of pods that were bound and released before
 * the last keep bytes. *ret_chain: of the last line. ERR_INVALID: a line is wrong. ERR_NOMEM. */
int ex_journal_compact(const char *text, size_t len, size_t keep, struct buf *out,
		       uint32_t *ret_chain, struct err *err);

/* ---- the file ---- */

struct ex_journal;

/* A record to be written. Filled by the caller and left alone until done is called. */
struct ex_journal_entry {
	const char *line; /* of ex_journal_put_bind() or _release() */
	size_t len;
	void (*done)(struct ex_journal_entry *e, int rc, const struct err *err);
	struct ex_journal_entry *next;
};

/* Sizes: 0 takes the one in brackets. */
struct ex_journal_options {
	bool sync;        /* a line is done when it is on the disk */
	size_t max_bytes; /* no line is taken beyond [EX_JOURNAL_MAX_BYTES] */
	size_t compact_bytes; /* a file of so many bytes, and twice what compacting left, is compacted [64 MiB] */
	size_t keep_bytes; /* of its end that stay as they are [16 MiB] */
	struct log *log;   /* told of compacting; may be NULL */
};

/* Opens or makes the file, reads what is in it through r, cuts off a torn last line (*ret_torn: its
 * bytes; text that is not the start of a record is ERR_INVALID and stays) and starts the
 * writer's thread. *ret is set before it returns 0.
 * ERR_CONFLICT: another process has it open. ERR_IO, ERR_TOO_LARGE, ERR_NOMEM, ex_journal_read(). */
int ex_journal_open(const char *path, const struct ex_journal_options *o,
		    const struct ex_journal_reader *r, struct ex_journal **ret, size_t *ret_torn,
		    struct err *err);
/* Would it be opened, beside a process that has it open perhaps? Reads it through r and changes nothing; where
 * there is none, its folder must let one be made. Errors as above. */
int ex_journal_check(const char *path, const struct ex_journal_reader *r, struct err *err);
/* Writes what was submitted, stops the thread, closes. NULL is allowed. */
void ex_journal_close(struct ex_journal *j);

/* Queues the entry; lines are written in the order of the calls, many by one write. done is called
 * from the writer's thread, in that order: 0, or ERR_IO, ERR_TOO_LARGE (max_bytes): then the line is not in
 * the file. After an error that could not be undone, and while the file is not the one that was opened or
 * was changed by somebody else, every later line fails too. */
void ex_journal_submit(struct ex_journal *j, struct ex_journal_entry *e);
/* Submits and waits. */
int ex_journal_append(struct ex_journal *j, const char *line, size_t len, struct err *err);
/* True after a line could not be written, until one could. Any thread. */
bool ex_journal_broken(const struct ex_journal *j);

#endif
