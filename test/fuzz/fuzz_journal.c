/* Bytes as a journal; each line also with the check sum that it should have, so that what is behind
 * the sum is reached. Nothing may crash or leak; a good prefix is read again the same way. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "extender/journal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "broken: %s\n", what);
		abort();
	}
}

static int on_bind(void *ctx, const struct st_pod_spec *pod, const struct st_pod_ident *ident,
		   const struct st_request *learned, struct err *err)
{
	size_t *count = ctx;

	(void)err;
	require(pod->uid != NULL && pod->ns != NULL && pod->name != NULL && pod->node != NULL,
		"names");
	require(ident->uid == pod->uid, "who it is");
	for (size_t i = 0; i < pod->annotation_count; i++)
		require(pod->annotations[i].key != NULL && pod->annotations[i].value != NULL,
			"texts");
	require(learned == NULL || learned->item_count <= ST_ITEMS_MAX, "items");
	++*count;
	return 0;
}

static int on_release(void *ctx, const char *uid, struct err *err)
{
	size_t *count = ctx;

	(void)err;
	require(uid != NULL, "a uid");
	++*count;
	return 0;
}

/* What is left is a journal, with no record more. */
static void compact_it(const char *text, size_t len, size_t count)
{
	struct buf all = BUF_INIT, less = BUF_INIT;
	size_t again = 0;
	struct ex_journal_reader r = {.bind = on_bind, .release = on_release, .ctx = &again};
	struct ex_journal_end end = {0};
	uint32_t chain = 0;

	require(ex_journal_compact(text, len, len, &all, &chain, NULL) == 0, "it can be copied");
	require(ex_journal_read(all.data, all.len, &r, &end, NULL) == 0 && again == count &&
			end.good == all.len && end.chain == chain,
		"a copy has all");
	again = 0;
	require(ex_journal_compact(text, len, 0, &less, &chain, NULL) == 0, "it can be compacted");
	require(ex_journal_read(less.data, less.len, &r, &end, NULL) == 0 && again <= count &&
			end.good == less.len && end.chain == chain,
		"some are gone");
	buf_fini(&all);
	buf_fini(&less);
}

static void read_it(const char *text, size_t len)
{
	size_t count = 0, again = 0;
	struct ex_journal_end end = {0}, same = {0};
	struct ex_journal_reader r = {.bind = on_bind, .release = on_release, .ctx = &count};
	struct err err = ERR_INIT;

	if (ex_journal_read(text, len, &r, &end, &err) < 0) {
		require(strncmp(err.msg, "line ", 5) == 0 ||
				strstr(err.msg, "its first line is no record") != NULL,
			"an error names its line");
		return;
	}
	require(end.good <= len && (end.good == 0 || text[end.good - 1] == '\n'), "whole lines");
	r.ctx = &again;
	require(ex_journal_read(text, end.good, &r, &same, &err) == 0 && same.good == end.good &&
			same.chain == end.chain && again == count,
		"the same when read again");
	compact_it(text, end.good, count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data;
	struct buf b = BUF_INIT;

	read_it(text, size);
	/* As one line whose sum is right. */
	buf_put(&b, text, size);
	for (size_t i = 0; i < b.len; i++) {
		if (b.data[i] == '\n')
			b.data[i] = ' ';
	}
	buf_printf(&b, ",\"crc\":\"%08x\"}\n", (unsigned)crc32_z(0, (const Bytef *)b.data, b.len));
	read_it(b.data, b.len);
	buf_fini(&b);
	return 0;
}
