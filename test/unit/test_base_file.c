#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "test/lib/oom.h"

static char dir[] = "/tmp/tessera-test-XXXXXX";
static char path[64];

static void make_dir(void)
{
	cr_assert_not_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/f", dir);
}

/* Removes the folder; it must hold nothing but the one file: no temporary name is left behind. */
static void remove_dir(void)
{
	unlink(path);
	cr_assert_eq(rmdir(dir), 0, "%s: %s", dir, strerror(errno));
}

TestSuite(base_file, .init = make_dir, .fini = remove_dir);

static void write_file(const char *data, size_t len)
{
	FILE *f = fopen(path, "w");

	cr_assert_not_null(f);
	cr_assert_eq(fwrite(data, 1, len, f), len);
	cr_assert_eq(fclose(f), 0);
}

static void expect_content(const char *want, size_t want_len)
{
	struct err err = ERR_INIT;
	size_t len = 0;
	char *data = NULL;

	cr_assert_eq(file_read(path, 1 << 20, &data, &len, &err), 0, "%s", err.msg);
	cr_assert_eq(len, want_len);
	cr_assert_eq(memcmp(data, want, len), 0);
	cr_assert_eq(data[len], '\0');
	free(data);
}

Test(base_file, read_whole_files)
{
	char big[100000];

	write_file("", 0);
	expect_content("", 0);
	write_file("a\0b\n", 4);
	expect_content("a\0b\n", 4);
	memset(big, 'x', sizeof(big));
	write_file(big, sizeof(big));
	expect_content(big, sizeof(big));
}

Test(base_file, read_limit)
{
	struct err err = ERR_INIT;
	size_t len = 77;
	char *data = NULL;

	write_file("12345", 5);
	cr_assert_eq(file_read(path, 5, &data, &len, &err), 0, "%s", err.msg);
	cr_assert_eq(len, 5);
	free(data);
	data = NULL;
	len = 77;
	cr_assert_eq(file_read(path, 4, &data, &len, &err), ERR_TOO_LARGE);
	cr_assert_not_null(strstr(err.msg, path), "%s", err.msg);
	/* Its size is not known before, and it has no end. */
	cr_assert_eq(file_read("/dev/zero", 1 << 20, &data, &len, &err), ERR_TOO_LARGE);
	cr_assert_eq(file_read("/dev/zero", 0, &data, &len, &err), ERR_TOO_LARGE);
	cr_assert(data == NULL && len == 77);
}

Test(base_file, read_errors_name_path_and_cause)
{
	struct err err = ERR_INIT;
	size_t len;
	char *data;

	cr_assert_eq(file_read("/nonexistent/x", 10, &data, &len, &err), ERR_IO);
	cr_assert_str_eq(err.msg, "/nonexistent/x: No such file or directory");
	cr_assert_eq(file_read("/", 1 << 20, &data, &len, &err), ERR_IO);
	cr_assert_str_eq(err.msg, "/: Is a directory");
}

/* A regular file that says size 0. */
Test(base_file, read_proc)
{
	struct err err = ERR_INIT;
	size_t len = 0;
	char *data = NULL;

	cr_assert_eq(file_read("/proc/self/status", 1 << 20, &data, &len, &err), 0, "%s", err.msg);
	cr_assert_gt(len, 100);
	cr_assert_eq(strlen(data), len);
	free(data);
}

Test(base_file, read_standard_input)
{
	static char text[200000];
	struct err err = ERR_INIT;
	size_t len = 0;
	char *data = NULL;
	int fds[2];

	memset(text, 'p', sizeof(text));
	cr_assert_eq(pipe(fds), 0);
	if (fork() == 0) {
		close(fds[0]);
		_exit(file_write_all(fds[1], text, sizeof(text)) == 0 ? 0 : 1);
	}
	close(fds[1]);
	cr_assert_eq(dup2(fds[0], STDIN_FILENO), STDIN_FILENO);
	close(fds[0]);
	cr_assert_eq(file_read("-", 1 << 20, &data, &len, &err), 0, "%s", err.msg);
	cr_assert_eq(len, sizeof(text));
	cr_assert_eq(memcmp(data, text, len), 0);
	free(data);
}

Test(base_file, replace)
{
	struct err err = ERR_INIT;
	struct stat st;

	cr_assert_eq(file_replace(path, "one", 3, &err), 0, "%s", err.msg);
	expect_content("one", 3);
	cr_assert_eq(file_replace(path, "", 0, &err), 0, "%s", err.msg);
	expect_content("", 0);
	cr_assert_eq(file_replace(path, "two\0", 4, &err), 0, "%s", err.msg);
	expect_content("two\0", 4);
	cr_assert_eq(stat(path, &st), 0);
	cr_assert_eq(st.st_mode & 0777, 0644);
}

Test(base_file, replace_errors_keep_the_old_file)
{
	char below[80];
	struct err err = ERR_INIT;

	write_file("old", 3);
	snprintf(below, sizeof(below), "%s/x", path); /* a file is no folder */
	cr_assert_eq(file_replace(below, "new", 3, &err), ERR_IO);
	cr_assert_not_null(strstr(err.msg, "Not a directory"), "%s", err.msg);
	/* A folder cannot be replaced by a file. */
	unlink(path);
	cr_assert_eq(mkdir(path, 0755), 0);
	cr_assert_eq(file_replace(path, "new", 3, &err), ERR_IO);
	cr_assert_not_null(strstr(err.msg, "Is a directory"), "%s", err.msg);
	cr_assert_eq(rmdir(path), 0);
}

Test(base_file, replace_follows_a_symlink)
{
	struct err err = ERR_INIT;
	struct stat st;
	char link[80], *text;
	size_t len;

	write_file("old", 3);
	snprintf(link, sizeof(link), "%s/l", dir);
	cr_assert_eq(symlink(path, link), 0);
	cr_expect_eq(file_replace(link, "new", 3, &err), 0, "%s", err.msg);
	cr_expect(lstat(link, &st) == 0 && S_ISLNK(st.st_mode));
	cr_assert_eq(file_read(path, 100, &text, &len, &err), 0);
	cr_expect_str_eq(text, "new");
	free(text);
	unlink(link);
}

/* A pipe stands for all that is no regular file: it is written to, never replaced. */
Test(base_file, replace_writes_into_a_pipe)
{
	struct err err = ERR_INIT;
	struct stat st;
	char got[8] = "";
	int fd;

	cr_assert_eq(mkfifo(path, 0600), 0);
	fd = open(path, O_RDWR); /* a reader, so that opening for writing does not wait */
	cr_assert_geq(fd, 0);
	cr_expect_eq(file_replace(path, "data", 4, &err), 0, "%s", err.msg);
	cr_expect_eq(read(fd, got, sizeof(got)), 4);
	cr_expect_str_eq(got, "data");
	cr_expect(lstat(path, &st) == 0 && S_ISFIFO(st.st_mode));
	close(fd);
}

Test(base_file, sync_folder)
{
	struct err err = ERR_INIT;

	cr_assert_eq(file_sync_folder(path, &err), 0, "%s", err.msg);
	cr_assert_eq(file_sync_folder("name", &err), 0, "%s", err.msg);
	cr_assert_eq(file_sync_folder("/nonexistent/x", &err), ERR_IO);
	cr_assert_str_eq(err.msg, "/nonexistent/: No such file or directory");
}

Test(base_file, write_all_reports_errors)
{
	int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);

	cr_assert_geq(fd, 0);
	cr_assert_eq(file_write_all(fd, "x", 1), -1);
	cr_assert_eq(errno, ENOSPC);
	cr_assert_eq(file_write_all(fd, "", 0), 0);
	close(fd);
}

Test(base_file, oom_sweep)
{
	write_file("old", 3);
	OOM_SWEEP(n) {
		struct err err = ERR_INIT;
		size_t len = 77;
		char *data = NULL;
		bool hit;
		int r;

		oom_fail_at(n);
		r = file_read("/proc/self/status", 1 << 20, &data, &len, &err);
		hit = oom_disarm();
		cr_assert_eq(r, hit ? ERR_NOMEM : 0, "%s", err.msg);
		cr_assert_eq(data == NULL, hit);
		free(data);
		if (!hit)
			break;
	}
	OOM_SWEEP(n) {
		struct err err = ERR_INIT;
		bool hit;
		int r;

		oom_fail_at(n);
		r = file_replace(path, "new", 3, &err);
		hit = oom_disarm();
		cr_assert_eq(r, hit ? ERR_NOMEM : 0, "%s", err.msg);
		if (!hit)
			break;
	}
	expect_content("new", 3);
}
