/* The journal over months: lines that are gone, files that were exchanged, and compacting. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/file.h"
#include "base/rng.h"
#include "test/unit/journal_fixture.h"

TestSuite(extender_journal_compact, .init = make_file, .fini = remove_file);

static void put_file(const void *data, size_t len)
{
	FILE *f = fopen(path, "w");

	cr_assert_not_null(f);
	cr_assert_eq(fwrite(data, 1, len, f), len);
	cr_assert_eq(fclose(f), 0);
}

static struct buf get_file(void)
{
	struct buf b = BUF_INIT;

	cr_assert_eq(file_read(path, (size_t)1 << 30, &b.data, &b.len, NULL), 0);
	b.cap = b.len + 1;
	return b;
}

/* What opening it says; "" = it opens. */
static struct err opening(struct seen *s)
{
	struct err err = ERR_INIT;
	size_t torn;

	ex_journal_close(open_it(s, &torn, &err));
	return err;
}

/* ---- lines that are not where they should be ---- */

/* A bind that nobody knows of is a GPU that is given away twice. */
Test(extender_journal_compact, a_line_that_is_gone_twice_or_moved_is_noticed)
{
	struct buf b = BUF_INIT, bad = BUF_INIT;
	size_t end[5] = {0};
	struct seen s;
	struct err err;

	for (int i = 1; i < 5; i++) {
		char uid[16];

		snprintf(uid, sizeof(uid), "u%d", i);
		put_bind(&b, uid, false);
		end[i] = b.len;
	}
	for (unsigned gone = 0; gone < 4; gone++) {
		buf_reset(&bad);
		buf_put(&bad, b.data, end[gone]);
		buf_put(&bad, b.data + end[gone + 1], b.len - end[gone + 1]);
		put_file(bad.data, bad.len);
		err = opening(&s);
		/* That the end of a file is gone can be seen by nobody. */
		cr_expect_eq(err.msg[0] == '\0', gone == 3, "line %u: %s", gone + 1, err.msg);
		cr_expect_eq(s.binds, gone, "%u before line %u", s.binds, gone + 1);
		cr_expect(gone == 3 ||
				  strstr(err.msg, "or one before it is changed or gone") != NULL,
			  "%s", err.msg);
	}
	buf_reset(&bad);
	buf_put(&bad, b.data, end[2]);
	buf_put(&bad, b.data + end[1], b.len - end[1]);
	put_file(bad.data, bad.len);
	err = opening(&s);
	cr_expect(strstr(err.msg, "line 3: ") != NULL, "twice: %s", err.msg);
	buf_reset(&bad);
	buf_put(&bad, b.data, end[1]);
	buf_put(&bad, b.data + end[2], end[3] - end[2]);
	buf_put(&bad, b.data + end[1], end[2] - end[1]);
	put_file(bad.data, bad.len);
	err = opening(&s);
	cr_expect(strstr(err.msg, "line 2: ") != NULL, "moved: %s", err.msg);
	buf_fini(&b);
	buf_fini(&bad);
}

/* Files of the version before go on. */
Test(extender_journal_compact, lines_of_version_1_are_read_and_gone_on_from)
{
	static const char record[] = "{\"v\":1,\"event\":\"bind\",\"uid\":\"%s\",\"ns\":\"a\","
				     "\"name\":\"b\",\"node\":\"c\",\"annotations\":{\"k\":\"v\"}";
	struct buf b = BUF_INIT, more = BUF_INIT, now;
	struct err err = ERR_INIT;
	struct ex_journal *j;
	struct seen s;
	size_t torn, from;

	for (int i = 0; i < 2; i++) {
		from = b.len;
		buf_printf(&b, record, i == 0 ? "old1" : "old2");
		buf_printf(&b, ",\"crc\":\"%08x\"}\n",
			   (unsigned)crc32_z(0, (const Bytef *)b.data + from, b.len - from));
	}
	put_file(b.data, b.len);
	j = open_it(&s, &torn, &err);
	cr_assert_not_null(j, "%s", err.msg);
	record_bind(&more, "new", false);
	cr_assert_eq(ex_journal_append(j, more.data, more.len, &err), 0, "%s", err.msg);
	ex_journal_close(j);
	err = opening(&s);
	cr_expect_str_eq(err.msg, "");
	cr_expect_eq(s.binds, 3);
	/* The new one hangs on the last old one. */
	now = get_file();
	put_file(now.data + from, now.len - from);
	err = opening(&s);
	cr_expect_str_eq(err.msg, "", "a line of version 1 stands alone: %s", err.msg);
	buf_reset(&b);
	buf_put(&b, now.data, from);
	for (const char *p = now.data + from; p < now.data + now.len; p++) {
		if (p[-1] == '\n' && p > now.data + from) {
			buf_put(&b, p, (size_t)(now.data + now.len - p));
			break;
		}
	}
	put_file(b.data, b.len);
	err = opening(&s);
	cr_expect(strstr(err.msg, "line 2: ") != NULL, "%s", err.msg);
	buf_fini(&b);
	buf_fini(&more);
	buf_fini(&now);
}

/* ---- files that are exchanged while in use ---- */

static void expect_refused(struct ex_journal *j, const char *words)
{
	struct buf b = BUF_INIT;
	struct err err = ERR_INIT;

	record_bind(&b, "late", false);
	cr_expect_eq(ex_journal_append(j, b.data, b.len, &err), ERR_IO);
	cr_expect(strstr(err.msg, words) != NULL, "%s", err.msg);
	cr_expect(ex_journal_broken(j));
	buf_fini(&b);
}

/* As logrotate does, or cp of an old copy over it. */
Test(extender_journal_compact, a_file_that_is_exchanged_is_noticed)
{
	struct buf b = BUF_INIT, old;
	struct err err = ERR_INIT;
	struct ex_journal *j;
	struct seen s;
	char aside[80];
	size_t torn;

	snprintf(aside, sizeof(aside), "%s.1", path);
	j = open_it(&s, &torn, &err);
	cr_assert_not_null(j, "%s", err.msg);
	record_bind(&b, "u1", false);
	cr_assert_eq(ex_journal_append(j, b.data, b.len, &err), 0, "%s", err.msg);
	cr_assert_eq(rename(path, aside), 0);
	expect_refused(j, "was removed while in use");
	put_file("", 0);
	expect_refused(j, "another file is there");
	cr_assert_eq(rename(aside, path), 0);
	cr_expect_eq(ex_journal_append(j, b.data, b.len, &err), 0, "it is back: %s", err.msg);
	cr_expect_not(ex_journal_broken(j));
	old = get_file();
	put_file(old.data, old.len / 2);
	expect_refused(j, "somebody else writes into it");
	put_file(old.data, old.len);
	ex_journal_close(j);
	err = opening(&s);
	cr_expect_str_eq(err.msg, "");
	cr_expect_eq(s.binds, 2, "nothing was written into any of them");
	buf_fini(&b);
	buf_fini(&old);
}

/* ---- what compacting leaves ---- */

#define UIDS 40

/* Random events, and which UIDs hold something at the end; those from the cluster file have a release
 * without a bind before it. */
static void make_events(struct rng *rng, struct buf *b, bool held[UIDS], size_t *ret_lines)
{
	bool from_file[UIDS];

	for (int i = 0; i < UIDS; i++)
		held[i] = from_file[i] = i % 4 == 0;
	*ret_lines = rng_below(rng, 200);
	for (size_t n = 0; n < *ret_lines; n++) {
		int i = (int)rng_below(rng, UIDS);
		char uid[24];

		snprintf(uid, sizeof(uid), i % 3 == 0 ? "u\"%d\\" : "u%d", i);
		if (held[i])
			put_release(b, uid);
		else
			put_bind(b, uid, i % 2 == 0);
		held[i] = !held[i];
	}
}

struct replay {
	bool held[UIDS];
	size_t events;
};

static int index_of(const char *uid)
{
	return (int)strtol(uid + strcspn(uid, "0123456789"), NULL, 10);
}

static int replay_bind(void *ctx, const struct st_pod_spec *pod, const struct st_pod_ident *ident,
		       const struct st_request *learned, struct err *err)
{
	struct replay *r = ctx;

	(void)ident;
	(void)learned;
	(void)err;
	r->held[index_of(pod->uid)] = true;
	r->events++;
	return 0;
}

static int replay_release(void *ctx, const char *uid, struct err *err)
{
	struct replay *r = ctx;

	(void)err;
	r->held[index_of(uid)] = false;
	r->events++;
	return 0;
}

Test(extender_journal_compact, the_pods_that_hold_something_are_the_same)
{
	struct rng rng;
	size_t dropped = 0;

	rng_init(&rng, 20);
	for (int round = 0; round < 300; round++) {
		struct buf b = BUF_INIT, less = BUF_INIT, twice = BUF_INIT;
		struct ex_journal_end end;
		struct replay r = {0};
		struct ex_journal_reader reader = {replay_bind, replay_release, &r};
		bool held[UIDS];
		uint32_t last = 0;
		size_t lines, keep;
		struct err err = ERR_INIT;

		make_events(&rng, &b, held, &lines);
		keep = rng_below(&rng, 3) == 0 ? rng_below(&rng, (uint32_t)b.len + 1) : 0;
		cr_assert_eq(ex_journal_compact(b.data, b.len, keep, &less, &last, &err), 0, "%s",
			     err.msg);
		for (int i = 0; i < UIDS; i++)
			r.held[i] = i % 4 == 0;
		cr_assert_eq(ex_journal_read(less.data, less.len, &reader, &end, &err), 0, "%s",
			     err.msg);
		cr_expect_eq(memcmp(r.held, held, sizeof(held)), 0, "round %d", round);
		cr_expect_eq(end.good, less.len);
		cr_expect_eq(end.chain, last);
		cr_expect(keep > 0 || r.events <= 2 * UIDS, "%zu of %zu", r.events, lines);
		dropped += lines - r.events;
		cr_assert_eq(ex_journal_compact(less.data, less.len, keep, &twice, &last, &err), 0);
		cr_expect(keep > 0 || twice.len == less.len, "nothing is left to do");
		buf_fini(&b);
		buf_fini(&less);
		buf_fini(&twice);
	}
	cr_expect_gt(dropped, 1000);
}

/* A pod whose node was away at a start is bound once more. Its release is that of both binds: the first one
 * alone would hold a GPU for ever. */
Test(extender_journal_compact, a_release_is_of_all_binds_before_it)
{
	struct buf b = BUF_INIT, out = BUF_INIT;
	struct err err = ERR_INIT;
	uint32_t last;

	for (int i = 0; i < 3; i++)
		put_bind(&b, "u1", false);
	put_release(&b, "u1");
	cr_expect_eq(ex_journal_compact(b.data, b.len, 0, &out, &last, &err), 0, "%s", err.msg);
	cr_expect_eq(out.len, 0, "left: %.*s", (int)out.len, out.data);
	buf_reset(&out);
	put_bind(&b, "u1", false);
	put_bind(&b, "u1", false);
	cr_expect_eq(ex_journal_compact(b.data, b.len, 0, &out, &last, &err), 0, "%s", err.msg);
	cr_expect(out.len > 0 && memchr(out.data, '\n', out.len) != out.data + out.len - 1,
		  "two that nobody released");
	buf_fini(&b);
	buf_fini(&out);
}

/* Nothing that is wrong on the disk gets a right check sum. */
Test(extender_journal_compact, a_wrong_line_is_not_copied)
{
	struct buf b = BUF_INIT, out = BUF_INIT;
	struct err err = ERR_INIT;
	uint32_t last;

	put_bind(&b, "u1", false);
	put_bind(&b, "u2", false);
	b.data[b.len / 2 + 50] ^= 1;
	cr_expect_eq(ex_journal_compact(b.data, b.len, 0, &out, &last, &err), ERR_INVALID);
	cr_expect(strncmp(err.msg, "line 2: ", 8) == 0, "%s", err.msg);
	b.data[b.len / 2 + 50] ^= 1;
	cr_expect_eq(ex_journal_compact(b.data, b.len - 1, 0, &out, &last, &err), ERR_INVALID);
	buf_fini(&b);
	buf_fini(&out);
}

/* ---- while it is written ---- */

static size_t file_size(const char *name)
{
	struct stat st;

	return stat(name, &st) == 0 ? (size_t)st.st_size : SIZE_MAX;
}

static void append(struct ex_journal *j, const char *uid, bool release)
{
	struct buf b = BUF_INIT;
	struct err err = ERR_INIT;

	if (release)
		ex_journal_put_release(&b, uid);
	else
		record_bind(&b, uid, true);
	cr_assert_eq(ex_journal_append(j, b.data, b.len, &err), 0, "%s: %s", uid, err.msg);
	buf_fini(&b);
}

static const struct ex_journal_options small = {
	.sync = true, .compact_bytes = 16384, .keep_bytes = 4096};

Test(extender_journal_compact, the_file_does_not_grow_for_ever)
{
	struct err err = ERR_INIT;
	struct ex_journal *j;
	struct seen s;
	char uid[16], made[80];
	size_t torn, most = 0;

	snprintf(made, sizeof(made), "%s.new", path);
	j = open_with(&small, &s, &torn, &err);
	cr_assert_not_null(j, "%s", err.msg);
	for (int i = 0; i < 1000; i++) {
		size_t size;

		snprintf(uid, sizeof(uid), "u%d", i);
		append(j, uid, false);
		if (i >= 10) { /* ten pods at a time */
			snprintf(uid, sizeof(uid), "u%d", i - 10);
			append(j, uid, true);
		}
		size = file_size(path);
		most = size > most ? size : most;
	}
	/* By how much it may be over: what came before the thread looked. */
	cr_expect_lt(most, 16384 + 4096, "%zu bytes", most);
	cr_expect_neq(access(made, F_OK), 0);
	/* The new file is held as the old one was. */
	cr_expect_null(open_with(&small, &s, &torn, &err));
	cr_expect(strstr(err.msg, "in use by another process") != NULL, "%s", err.msg);
	ex_journal_close(j);
	err = opening(&s);
	cr_expect_str_eq(err.msg, "");
	cr_expect_eq(s.binds - s.releases, 10, "%u, %u", s.binds, s.releases);
}

/* One that grew under a program that did not compact is compacted at the start; what cannot be, because
 * all pods are there still, is not tried with each line. */
Test(extender_journal_compact, at_the_start_and_not_with_each_line)
{
	struct buf b = BUF_INIT, one, two;
	struct err err = ERR_INIT;
	struct ex_journal *j;
	struct seen s;
	char uid[16];
	size_t torn, big;

	for (int i = 0; i < 200; i++) {
		snprintf(uid, sizeof(uid), "u%d", i);
		put_bind(&b, uid, false);
		if (i < 100)
			put_release(&b, uid);
	}
	big = b.len;
	put_file(b.data, b.len);
	j = open_with(&small, &s, &torn, &err);
	cr_assert_not_null(j, "%s", err.msg);
	cr_expect_eq(s.binds, 200);
	append(j, "next", false); /* written behind the first look */
	one = get_file();
	cr_expect_lt(one.len, big * 3 / 4, "%zu of %zu", one.len, big);
	append(j, "next", true);
	append(j, "more", false);
	two = get_file();
	cr_expect_gt(two.len, one.len, "twice what was left is not reached");
	cr_expect_eq(memcmp(one.data, two.data, one.len), 0, "written anew");
	ex_journal_close(j);
	buf_fini(&b);
	buf_fini(&one);
	buf_fini(&two);
}

/* Where there is no room for the new file the old one goes on. */
Test(extender_journal_compact, a_failure_changes_nothing)
{
	struct err err = ERR_INIT;
	struct ex_journal *j;
	struct seen s;
	char uid[16], made[80];
	size_t torn, before = 0;

	snprintf(made, sizeof(made), "%s.new", path);
	cr_assert_eq(mkdir(made, 0755), 0);
	j = open_with(&small, &s, &torn, &err);
	cr_assert_not_null(j, "%s", err.msg);
	for (int i = 0; i < 100; i++) {
		snprintf(uid, sizeof(uid), "u%d", i);
		append(j, uid, false);
		append(j, uid, true);
		cr_assert_gt(file_size(path), before);
		before = file_size(path);
	}
	cr_expect_gt(before, 2 * small.compact_bytes);
	cr_expect_not(ex_journal_broken(j));
	cr_assert_eq(rmdir(made), 0);
	for (int i = 0; i < 20; i++) {
		snprintf(uid, sizeof(uid), "v%d", i);
		append(j, uid, false);
		append(j, uid, true);
	}
	cr_expect_lt(file_size(path), before, "tried again");
	ex_journal_close(j);
	err = opening(&s);
	cr_expect_str_eq(err.msg, "");
	cr_expect_eq(s.binds, s.releases);
}

/* A link stays one: the file that it leads to is the journal. */
Test(extender_journal_compact, a_link_stays_a_link)
{
	struct ex_journal_reader r = {0};
	struct err err = ERR_INIT;
	struct ex_journal *j = NULL;
	char link[80], uid[16];
	struct stat st;
	size_t torn;

	snprintf(link, sizeof(link), "%s.link", path);
	cr_assert_eq(symlink(path, link), 0);
	cr_assert_eq(ex_journal_open(link, &small, &r, &j, &torn, &err), 0, "%s", err.msg);
	for (int i = 0; i < 100; i++) {
		snprintf(uid, sizeof(uid), "u%d", i);
		append(j, uid, false);
		append(j, uid, true);
	}
	cr_expect(lstat(link, &st) == 0 && S_ISLNK(st.st_mode));
	cr_expect_lt(file_size(path), 2 * small.compact_bytes);
	/* Where it leads elsewhere, the next start does not find what is written. */
	cr_assert_eq(unlink(link), 0);
	cr_assert_eq(symlink("/dev/null", link), 0);
	expect_refused(j, "another file is there");
	cr_assert_eq(unlink(link), 0);
	expect_refused(j, "was removed while in use");
	ex_journal_close(j);
}

/* No line that the next start could not read. */
Test(extender_journal_compact, a_full_journal_is_said)
{
	const struct ex_journal_options tiny = {.max_bytes = 1000, .compact_bytes = 1 << 20};
	struct buf b = BUF_INIT;
	struct err err = ERR_INIT;
	struct ex_journal *j;
	struct seen s;
	size_t torn;

	j = open_with(&tiny, &s, &torn, &err);
	cr_assert_not_null(j, "%s", err.msg);
	append(j, "u1", false);
	append(j, "u2", false);
	record_bind(&b, "u3", true);
	cr_expect_eq(ex_journal_append(j, b.data, b.len, &err), ERR_TOO_LARGE);
	cr_expect(strstr(err.msg, "more than 1000 bytes") != NULL, "%s", err.msg);
	cr_expect(ex_journal_broken(j));
	append(j, "u1", true);
	cr_expect_not(ex_journal_broken(j));
	ex_journal_close(j);
	j = open_with(&tiny, &s, &torn, &err);
	cr_assert_not_null(j, "%s", err.msg);
	cr_expect_eq(s.binds, 2);
	cr_expect_eq(s.releases, 1);
	ex_journal_close(j);
	buf_fini(&b);
}

/* ---- the service over it ---- */

Test(extender_journal_compact, a_service_finds_everything_as_it_was)
{
	static const char *const kinds[] = {
		"\"gpu-fraction\":\"0.2\"",
		"\"gpu-memory\":\"4096\",\"gpu-memory.limit\":\"4Gi\"",
		"\"nvidia.com/container.main.gpu-memory.request\":\"2Gi\","
		"\"nvidia.com/container.main.gpu-compute.mode\":\"sm-sharing\","
		"\"nvidia.com/container.main.gpu-compute.request\":\"0.25\"",
		"\"tessera.dev/container.main.mig-profile\":\"1g.5gb\"",
	};
	char *cluster = two_nodes(), *before, *after, uids[60][16];
	struct buf file, less = BUF_INIT;
	struct err err = ERR_INIT;
	bool bound[60] = {0};
	struct rng rng;
	uint32_t last;
	struct xf f;
	int binds = 0;

	rng_init(&rng, 4);
	xf_open(&f, cluster, NULL, path);
	for (int n = 0; n < 400; n++) {
		int i = (int)rng_below(&rng, 60);

		snprintf(uids[i], sizeof(uids[i]), "u%d", i);
		if (bound[i])
			cr_assert_eq(ex_service_release_now(f.s, uids[i], &err), 0, "%s", err.msg);
		else if (xf_schedule(&f,
				     (struct xf_pod){.uid = uids[i], .annotations = kinds[i % 4]},
				     "n1 n2") == NULL)
			continue;
		binds += !bound[i];
		bound[i] = !bound[i];
	}
	cr_expect_gt(binds, 100);
	cr_assert_eq(ex_service_release_now(f.s, "old", &err), 0, "%s", err.msg);
	before = xf_books(&f);
	xf_close(&f);
	file = get_file();
	cr_assert_eq(ex_journal_compact(file.data, file.len, 0, &less, &last, &err), 0, "%s",
		     err.msg);
	cr_expect_lt(less.len, file.len / 2);
	put_file(less.data, less.len);
	xf_open(&f, cluster, NULL, path);
	after = xf_books(&f);
	cr_expect_str_eq(after, before);
	xf_close(&f);
	buf_fini(&file);
	buf_fini(&less);
	free(before);
	free(after);
	free(cluster);
}
