#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/file.h"
#include "test/unit/journal_fixture.h"
#include <zlib.h>

/* ---- lines ---- */

static int read_all(const char *text, size_t len, struct seen *s, size_t *good, struct err *err)
{
	struct ex_journal_reader r = {.bind = on_bind, .release = on_release, .ctx = s};
	char *exact = malloc(len > 0 ? len : 1);
	struct ex_journal_end end = {0};
	int rc;

	memcpy(exact, text, len);
	memset(s, 0, sizeof(*s));
	rc = ex_journal_read(exact, len, &r, &end, err);
	free(exact);
	if (rc == 0)
		*good = end.good;
	return rc;
}

Test(extender_journal, lines_come_back)
{
	struct buf b = BUF_INIT;
	struct err err = ERR_INIT;
	struct seen s;
	size_t good = 0;

	put_bind(&b, "u\"1", true);
	cr_assert_eq(read_all(b.data, b.len, &s, &good, &err), 0, "%s", err.msg);
	cr_expect_str_eq(s.last,
			 "u\"1 ns/p node-1 -5 1500 1099511627776 1 1 1 a/b=\"quoted\"\n 4096");
	cr_expect_eq(good, b.len);
	put_bind(&b, "u2", false);
	put_release(&b, "u2");
	cr_assert_eq(read_all(b.data, b.len, &s, &good, &err), 0, "%s", err.msg);
	cr_expect_eq(s.binds, 2);
	cr_expect_eq(s.releases, 1);
	cr_expect_str_eq(s.last, "release u2");
	cr_assert_eq(read_all("", 0, &s, &good, &err), 0);
	cr_expect_eq(good, 0);
	buf_fini(&b);
}

Test(extender_journal, a_line_torn_at_any_byte_is_left_out)
{
	struct buf b = BUF_INIT;
	struct err err = ERR_INIT;
	struct seen s;
	size_t first, good;

	put_bind(&b, "u1", true);
	first = b.len;
	put_bind(&b, "u2", true);
	for (size_t len = first; len < b.len; len++) {
		good = SIZE_MAX;
		cr_assert_eq(read_all(b.data, len, &s, &good, &err), 0, "%zu: %s", len, err.msg);
		cr_expect_eq(s.binds, 1);
		cr_expect_eq(good, first);
	}
	buf_fini(&b);
}

Test(extender_journal, a_changed_byte_anywhere_is_an_error_with_its_line)
{
	struct buf b = BUF_INIT;
	struct seen s;
	size_t good = SIZE_MAX, first, second;

	put_bind(&b, "u1", true);
	first = b.len;
	put_bind(&b, "u2", true);
	second = b.len;
	put_release(&b, "u2");
	for (size_t at = first; at < second - 1; at++) {
		struct err err = ERR_INIT;

		b.data[at] ^= 0x20;
		cr_expect_eq(read_all(b.data, b.len, &s, &good, &err), ERR_INVALID, "byte %zu", at);
		cr_expect(strncmp(err.msg, "line 2: ", 8) == 0, "%s", err.msg);
		cr_expect_eq(s.binds, 1);
		b.data[at] ^= 0x20;
	}
	cr_expect_eq(good, SIZE_MAX);
	buf_fini(&b);
}

/* A line with a right check sum whose content is not what it should be. */
static void expect_wrong(const char *json, const char *want)
{
	struct buf b = BUF_INIT;
	struct err err = ERR_INIT;
	struct seen s;
	size_t good;

	buf_puts(&b, json);
	buf_printf(&b, ",\"crc\":\"%08x\"}\n", (unsigned)crc32_z(0, (const Bytef *)b.data, b.len));
	cr_expect_eq(read_all(b.data, b.len, &s, &good, &err), ERR_INVALID, "%s", json);
	cr_expect(strstr(err.msg, want) != NULL, "%s", err.msg);
	buf_fini(&b);
}

Test(extender_journal, content_is_checked_too)
{
	expect_wrong("{\"v\":3,\"event\":\"bind\",\"uid\":\"u\"", "version 1 or 2");
	expect_wrong("{\"v\":1,\"event\":\"jump\",\"uid\":\"u\"", "unknown event \"jump\"");
	expect_wrong("{\"v\":1,\"event\":\"bind\",\"uid\":\"u\"", "without ns");
	expect_wrong(
		"{\"v\":1,\"event\":\"bind\",\"uid\":\"u\",\"ns\":\"a\",\"name\":\"b\",\"node\":\"c\","
		"\"annotations\":{\"k\":1}",
		"annotation");
	expect_wrong(
		"{\"v\":1,\"event\":\"bind\",\"uid\":\"u\",\"ns\":\"a\",\"name\":\"b\",\"node\":\"c\","
		"\"request\":{\"product\":\"\",\"workload\":0,\"items\":[{\"kind\":9}]}",
		"request that cannot be");
	expect_wrong("{\"v\":1,,\"event\":\"bind\"", "JSON, byte");
}

/* ---- the file ---- */

TestSuite(extender_journal_file, .init = make_file, .fini = remove_file);

Test(extender_journal_file, keeps_what_was_appended)
{
	struct buf b = BUF_INIT;
	struct err err = ERR_INIT;
	struct ex_journal *j;
	struct seen s;
	size_t torn = 1;

	j = open_it(&s, &torn, &err);
	cr_assert_not_null(j, "%s", err.msg);
	cr_expect_eq(torn, 0);
	for (int i = 0; i < 20; i++) {
		char uid[16];

		snprintf(uid, sizeof(uid), "u%d", i);
		buf_reset(&b);
		record_bind(&b, uid, false);
		cr_assert_eq(ex_journal_append(j, b.data, b.len, &err), 0, "%s", err.msg);
	}
	ex_journal_close(j);
	j = open_it(&s, &torn, &err);
	cr_assert_not_null(j, "%s", err.msg);
	cr_expect_eq(s.binds, 20);
	ex_journal_close(j);
	buf_fini(&b);
}

Test(extender_journal_file, goes_on_behind_a_torn_line)
{
	struct buf b = BUF_INIT;
	struct err err = ERR_INIT;
	struct ex_journal *j;
	struct seen s;
	size_t torn = 0, first;

	put_bind(&b, "u1", false);
	first = b.len;
	put_bind(&b, "u2", false);
	cr_assert_eq(file_replace(path, b.data, b.len - 10, &err), 0);
	j = open_it(&s, &torn, &err);
	cr_assert_not_null(j, "%s", err.msg);
	cr_expect_eq(torn, b.len - 10 - first);
	buf_reset(&b);
	ex_journal_put_release(&b, "u1");
	cr_assert_eq(ex_journal_append(j, b.data, b.len, &err), 0);
	ex_journal_close(j);
	j = open_it(&s, &torn, &err);
	cr_assert_not_null(j, "%s", err.msg);
	cr_expect_eq(torn, 0);
	cr_expect_eq(s.binds, 1);
	cr_expect_eq(s.releases, 1);
	ex_journal_close(j);
	buf_fini(&b);
}

Test(extender_journal_file, is_open_once_only)
{
	struct err err = ERR_INIT;
	struct seen s;
	size_t torn;
	struct ex_journal *j = open_it(&s, &torn, &err);

	cr_assert_not_null(j, "%s", err.msg);
	cr_expect_null(open_it(&s, &torn, &err));
	cr_expect(strstr(err.msg, "in use by another process") != NULL, "%s", err.msg);
	ex_journal_close(j);
}

Test(extender_journal_file, a_corrupt_file_is_refused_with_its_name)
{
	struct err err = ERR_INIT;
	struct seen s;
	size_t torn;

	struct buf b = BUF_INIT;

	cr_assert_eq(file_replace(path, "{}\n{}\n", 6, &err), 0);
	cr_expect_null(open_it(&s, &torn, &err));
	cr_expect(strstr(err.msg, path) != NULL && strstr(err.msg, "not a journal") != NULL, "%s",
		  err.msg);
	err = (struct err)ERR_INIT;
	put_release(&b, "u1");
	put_release(&b, "u2");
	b.data[b.len - 4] ^= 1;
	cr_assert_eq(file_replace(path, b.data, b.len, &err), 0);
	cr_expect_null(open_it(&s, &torn, &err));
	cr_expect(strstr(err.msg, path) != NULL &&
			  strstr(err.msg, ": line 2: the check sum ") != NULL,
		  "%s", err.msg);
	cr_expect(strstr(err.msg, "extender/README.md, \"When the journal is refused\"") != NULL,
		  "%s", err.msg);
	buf_fini(&b);
}

Test(extender_journal_file, a_full_disk_is_an_error_and_leaves_no_part)
{
	struct rlimit old, low;
	struct buf b = BUF_INIT;
	struct err err = ERR_INIT;
	struct ex_journal *j;
	struct seen s;
	size_t torn, whole;

	signal(SIGXFSZ, SIG_IGN);
	j = open_it(&s, &torn, &err);
	cr_assert_not_null(j, "%s", err.msg);
	record_bind(&b, "u1", false);
	whole = b.len + EX_JOURNAL_TAIL_LEN;
	cr_assert_eq(ex_journal_append(j, b.data, b.len, &err), 0);
	cr_assert_eq(getrlimit(RLIMIT_FSIZE, &old), 0);
	low = old;
	low.rlim_cur = whole + 20;
	cr_assert_eq(setrlimit(RLIMIT_FSIZE, &low), 0);
	cr_expect_eq(ex_journal_append(j, b.data, b.len, &err), ERR_IO);
	cr_expect(strstr(err.msg, "File too large") != NULL, "%s", err.msg);
	cr_expect(ex_journal_broken(j), "not ready while lines cannot be written");
	cr_assert_eq(setrlimit(RLIMIT_FSIZE, &old), 0);
	cr_expect_eq(ex_journal_append(j, b.data, b.len, &err), 0);
	cr_expect_not(ex_journal_broken(j), "ready again after a good write");
	ex_journal_close(j);
	j = open_it(&s, &torn, &err);
	cr_assert_not_null(j, "%s", err.msg);
	cr_expect_eq(torn, 0);
	cr_expect_eq(s.binds, 2);
	ex_journal_close(j);
	buf_fini(&b);
}

Test(extender_journal_file, a_file_that_is_no_journal_is_left_alone)
{
	static const char notes[] = "my notes, without a last newline";
	struct err err = ERR_INIT;
	struct seen s;
	size_t torn, len;
	char *text;
	FILE *f = fopen(path, "w");

	cr_assert_not_null(f);
	cr_assert_eq(fwrite(notes, 1, strlen(notes), f), strlen(notes));
	cr_assert_eq(fclose(f), 0);
	cr_expect_null(open_it(&s, &torn, &err));
	cr_expect(strstr(err.msg, "not a journal") != NULL, "%s", err.msg);
	cr_assert_eq(file_read(path, 1000, &text, &len, &err), 0);
	cr_expect_str_eq(text, notes);
	free(text);
}

/* ---- the service over it ---- */

Test(extender_journal_file, a_restart_finds_everything_as_it_was)
{
	static const struct xf_pod pods[] = {
		{.uid = "a", .annotations = "\"gpu-fraction\":\"0.3\""},
		{.uid = "b",
		 .annotations = "\"gpu-memory\":\"4096\",\"gpu-memory.limit\":\"4Gi\"",
		 .priority = 7},
		{.uid = "c",
		 .annotations = "\"nvidia.com/container.main.gpu-memory.request\":\"2Gi\","
				"\"nvidia.com/container.main.gpu-compute.mode\":\"sm-sharing\","
				"\"nvidia.com/container.main.gpu-compute.request\":\"0.25\""},
		{.uid = "d",
		 .annotations = "\"tessera.dev/container.main.mig-profile\":\"2g.10gb\""},
		{.uid = "e",
		 .annotations = "\"tessera.dev/container.main.mig-profile\":\"3g.20gb\""},
		{.uid = "f", .annotations = ""},
	};
	char *cluster = two_nodes(), *before, *after;
	struct err err = ERR_INIT;
	struct xf f;

	xf_open(&f, cluster, NULL, path);
	for (size_t i = 0; i < sizeof(pods) / sizeof(pods[0]); i++)
		cr_assert_not_null(xf_schedule(&f, pods[i], "n1 n2"), "pod %s", pods[i].uid);
	cr_assert_eq(ex_service_release_now(f.s, "d", &err), 0, "%s", err.msg);
	cr_assert_eq(ex_service_release_now(f.s, "old", &err), 0, "%s", err.msg);
	before = xf_books(&f);
	xf_close(&f);

	xf_open(&f, cluster, NULL, path);
	after = xf_books(&f);
	cr_expect_str_eq(after, before);
	cr_expect(strstr(after, "old ") == NULL);
	/* A repeated bind is known after the restart too, and the next choice is the same. */
	cr_expect_null(strstr(after, "\nd "));
	cr_assert_not_null(xf_schedule(&f, pods[3], "n1 n2"));
	xf_close(&f);
	free(before);
	free(after);
	free(cluster);
}

Test(extender_journal_file, what_was_learned_is_learned_again)
{
	char *cluster = two_nodes(), *text[2];
	struct xf f;

	for (int run = 0; run < 2; run++) {
		char uid[16];

		xf_open(&f, cluster, NULL, path);
		for (int i = 0; run == 0 && i < 40; i++) {
			snprintf(uid, sizeof(uid), "u%d", i);
			cr_assert_not_null(xf_schedule(
				&f,
				(struct xf_pod){.uid = uid,
						.annotations = "\"gpu-memory\":\"512\""},
				"n1"));
		}
		text[run] = xf_cluster_json(&f);
		*strstr(text[run], "\"totals\"") = '\0';
		xf_close(&f);
	}
	cr_expect_str_eq(text[1], text[0]);
	cr_expect(strstr(text[0], "fragmented_gpu_milli") != NULL);
	free(text[0]);
	free(text[1]);
	free(cluster);
}

Test(extender_journal_file, a_bind_that_cannot_be_recorded_did_not_happen)
{
	static const struct xf_pod pod = {.uid = "a", .annotations = "\"gpu-fraction\":\"0.5\""};
	char *cluster = two_nodes(), *before, *after, *error;
	struct rlimit old, low;
	struct xf f;

	signal(SIGXFSZ, SIG_IGN);
	xf_open(&f, cluster, NULL, path);
	before = xf_books(&f);
	free(xf_passing(&f, pod, "n1 n2"));
	cr_assert_eq(getrlimit(RLIMIT_FSIZE, &old), 0);
	low = old;
	low.rlim_cur = 10;
	cr_assert_eq(setrlimit(RLIMIT_FSIZE, &low), 0);
	for (int i = 0; i < 10; i++) {
		error = xf_bind(&f, "a", "n1");
		cr_expect(strstr(error, "File too large") != NULL, "%s", error);
		free(error);
	}
	cr_assert_eq(setrlimit(RLIMIT_FSIZE, &old), 0);
	after = xf_books(&f);
	cr_expect_str_eq(after, before);
	error = xf_bind(&f, "a", "n1");
	cr_expect_str_eq(error, "");
	free(error);
	free(before);
	free(after);
	xf_close(&f);
	free(cluster);
}

Test(extender_journal_file, a_pod_whose_node_is_gone_from_the_file_is_left_out)
{
	static const struct xf_pod pod = {.uid = "a", .annotations = "\"gpu-fraction\":\"0.5\""};
	struct ex_service_config cfg = {.state = ST_CONFIG_DEFAULT};
	char *cluster = two_nodes();
	struct err err = ERR_INIT;
	struct ex_service *s;
	struct xf f;
	char *books;

	xf_open(&f, cluster, NULL, path);
	cr_assert_not_null(xf_schedule(&f, pod, "n1"));
	xf_close(&f);
	s = ex_service_new(&cfg, &err);
	cr_assert_eq(ex_service_load_text(s, "{\"kind\":\"List\",\"items\":[]}", 26, &err), 0);
	cr_expect_eq(ex_service_open_journal(s, path, true, &err), 0, "%s", err.msg);
	ex_service_close_journal(s);
	ex_service_free(s);
	/* Its line stays: with the node, the pod is back. */
	xf_open(&f, cluster, NULL, path);
	books = xf_books(&f);
	cr_expect_not_null(strstr(books, "GPU-n1-0 time-slicing free 20480"), "%s", books);
	free(books);
	xf_close(&f);
	free(cluster);
}

/* Answers that nobody could find again must not be given. */
Test(extender_journal_file, a_file_that_was_removed_is_noticed)
{
	static const struct xf_pod pod = {.uid = "a", .annotations = "\"gpu-fraction\":\"0.5\""};
	char *cluster = two_nodes(), *error, *node;
	const char *why = "";
	struct xf f;

	xf_open(&f, cluster, NULL, path);
	cr_assert_eq(unlink(path), 0);
	node = xf_passing(&f, pod, "n1");
	cr_expect_str_eq(node, "n1");
	error = xf_bind(&f, "a", "n1");
	cr_expect_not_null(strstr(error, "was removed while in use"), "%s", error);
	cr_expect_not(ex_service_ready(f.s, &why));
	cr_expect_str_eq(why, "the journal cannot be written");
	free(error);
	free(node);
	xf_close(&f);
	free(cluster);
}

/* What a power cut leaves of a write may be zeros. */
Test(extender_journal_file, zeros_at_the_end_are_cut_off)
{
	static const struct xf_pod pod = {.uid = "a", .annotations = "\"gpu-fraction\":\"0.5\""};
	char *cluster = two_nodes(), *before, *after;
	struct xf f;
	FILE *file;

	xf_open(&f, cluster, NULL, path);
	cr_assert_not_null(xf_schedule(&f, pod, "n1"));
	before = xf_books(&f);
	xf_close(&f);
	file = fopen(path, "a");
	cr_assert_not_null(file);
	for (int i = 0; i < 5000; i++)
		fputc('\0', file);
	cr_assert_eq(fclose(file), 0);
	xf_open(&f, cluster, NULL, path);
	after = xf_books(&f);
	cr_expect_str_eq(after, before);
	free(before);
	free(after);
	xf_close(&f);
	free(cluster);
}
