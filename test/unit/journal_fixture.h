/* Records, readers and a file for the tests of the journal. */
#ifndef TESSERA_TEST_JOURNAL_FIXTURE_H
#define TESSERA_TEST_JOURNAL_FIXTURE_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "extender/journal.h"
#include "test/lib/extender_fixture.h"

struct seen {
	unsigned binds, releases;
	char last[512];
};

static inline int on_bind(void *ctx, const struct st_pod_spec *pod,
			  const struct st_pod_ident *ident, const struct st_request *learned,
			  struct err *err)
{
	struct seen *s = ctx;

	(void)err;
	s->binds++;
	snprintf(s->last, sizeof(s->last), "%s %s/%s %s %d %lld %lld %d %zu %zu %s=%s %d", pod->uid,
		 pod->ns, pod->name, pod->node, ident->priority, (long long)ident->cpu_milli,
		 (long long)ident->mem_mib, ident->memory_bound, pod->container_count,
		 pod->annotation_count, pod->annotations[0].key, pod->annotations[0].value,
		 learned != NULL ? learned->items[0].request_mib : -1);
	return 0;
}

static inline int on_release(void *ctx, const char *uid, struct err *err)
{
	struct seen *s = ctx;

	(void)err;
	s->releases++;
	snprintf(s->last, sizeof(s->last), "release %s", uid);
	return 0;
}

static struct st_kv annotation = {"a/b", "\"quoted\"\n"};

/* Of the last line that was put into an empty buffer, and behind it. */
static uint32_t chain;

static inline void seal(struct buf *b, struct buf *record)
{
	if (b->len == 0)
		chain = 0;
	ex_journal_seal(b, record->data, record->len, &chain);
	buf_fini(record);
}

static inline void put_release(struct buf *b, const char *uid)
{
	struct buf record = BUF_INIT;

	ex_journal_put_release(&record, uid);
	seal(b, &record);
}

static inline void record_bind(struct buf *b, const char *uid, bool learned)
{
	struct st_pod_ident ident = {.uid = uid,
				     .ns = "ns",
				     .name = "p",
				     .priority = -5,
				     .cpu_milli = 1500,
				     .mem_mib = 1LL << 40,
				     .memory_bound = true};
	struct st_annotations a = {.count = 1, .cap = 1, .kv = &annotation};
	struct st_request req = {.item_count = 1, .items = {{.count = 1, .request_mib = 4096}}};
	struct st_decision d = {.grant_count = 1, .grants = {{.container = "main"}}};

	ex_journal_put_bind(b, &ident, "node-1", &d, &a, learned ? &req : NULL);
}

static inline void put_bind(struct buf *b, const char *uid, bool learned)
{
	struct buf record = BUF_INIT;

	record_bind(&record, uid, learned);
	seal(b, &record);
}

static char path[] = "/tmp/tessera-journal-XXXXXX";

static inline void make_file(void)
{
	int fd = mkstemp(path);

	cr_assert_geq(fd, 0);
	close(fd);
}

static inline void remove_file(void)
{
	unlink(path);
}

/* NULL: it could not be opened. */
static inline struct ex_journal *open_with(const struct ex_journal_options *o, struct seen *s,
					   size_t *torn, struct err *err)
{
	struct ex_journal_reader r = {.bind = on_bind, .release = on_release, .ctx = s};
	struct ex_journal *j = NULL;

	memset(s, 0, sizeof(*s));
	return ex_journal_open(path, o, &r, &j, torn, err) == 0 ? j : NULL;
}

static inline struct ex_journal *open_it(struct seen *s, size_t *torn, struct err *err)
{
	return open_with(&(struct ex_journal_options){.sync = true}, s, torn, err);
}

/* A cluster of two nodes, one of them with MIG on. */
static inline char *two_nodes(void)
{
	struct buf b = BUF_INIT;

	xf_list_begin(&b);
	xf_node(&b, "n1", 2, 40960, "NVIDIA A100-SXM4-40GB", false);
	xf_node(&b, "n2", 2, 40960, "NVIDIA A100-SXM4-40GB", true);
	xf_pod(&b, (struct xf_pod){.uid = "old", .node = "n1"});
	xf_list_end(&b);
	return buf_take(&b);
}

#endif
