#include "test/lib/hardware.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "test/lib/fake_mps.h"
#include "test/lib/fake_nvml.h"

#define PATHS 4

static void die(const char *what, const char *path)
{
	fprintf(stderr, "hardware: %s %s: %s\n", what, path, strerror(errno));
	abort();
}

const char *hardware_path(const struct hardware *h, const char *path)
{
	static char paths[PATHS][512];
	static unsigned next;
	char *p = paths[next++ % PATHS];

	snprintf(p, sizeof(paths[0]), "%s/%s", h->dir, path);
	return p;
}

/* Makes the folders above a path. */
static void make_parents(const char *path)
{
	char part[512];
	size_t len = strlen(path);

	for (size_t i = 1; i < len && i < sizeof(part); i++) {
		if (path[i] != '/')
			continue;
		memcpy(part, path, i);
		part[i] = '\0';
		if (mkdir(part, 0755) != 0 && errno != EEXIST)
			die("mkdir", part);
	}
}

__attribute__((format(printf, 2, 0))) static void put(const char *path, const char *fmt, va_list ap)
{
	FILE *f;

	make_parents(path);
	f = fopen(path, "w");
	if (f == NULL)
		die("write", path);
	vfprintf(f, fmt, ap);
	fclose(f);
}

void hardware_init(struct hardware *h)
{
	ssize_t len = readlink("/proc/self/exe", h->build, sizeof(h->build) - 1);

	if (len < 0)
		die("find", "ourselves");
	h->build[len] = '\0';
	*strrchr(h->build, '/') = '\0';
	snprintf(h->library, sizeof(h->library), "%s/libnvidia-ml.so.1", h->build);
	snprintf(h->control, sizeof(h->control), "%s/nvidia-cuda-mps-control", h->build);
	snprintf(h->smi, sizeof(h->smi), "%s/nvidia-smi", h->build);
	snprintf(h->dir, sizeof(h->dir), "/tmp/tessera-hw-XXXXXX");
	if (mkdtemp(h->dir) == NULL)
		die("mkdtemp", h->dir);
	setenv(FAKE_NVML_ENV, hardware_path(h, "nvml"), 1);
	setenv(FAKE_MPS_ENV, hardware_path(h, "mps"), 1);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

void hardware_fini(struct hardware *h)
{
	nftw(h->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	unsetenv(FAKE_NVML_ENV);
	unsetenv(FAKE_MPS_ENV);
}

void hardware_nvml(const struct hardware *h, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	put(hardware_path(h, "nvml"), fmt, ap);
	va_end(ap);
}

/* Who reads it waits for somebody who writes it. */
void hardware_nvml_hang(const struct hardware *h)
{
	const char *script = hardware_path(h, "nvml"), *kept = hardware_path(h, "nvml-kept");

	if (rename(script, kept) != 0 || mkfifo(script, 0600) != 0)
		die("hang", script);
}

void hardware_nvml_go_on(const struct hardware *h)
{
	const char *script = hardware_path(h, "nvml");
	char *text = hardware_read(h, "nvml-kept");
	int fd =
		open(script, O_RDWR | O_CLOEXEC); /* does not wait, whether somebody reads or not */

	if (fd < 0 || rename(hardware_path(h, "nvml-kept"), script) != 0 ||
	    file_write_all(fd, text, strlen(text)) != 0)
		die("go on", script);
	close(fd);
	free(text);
}

void hardware_mps(const struct hardware *h, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	put(hardware_path(h, "mps"), fmt, ap);
	va_end(ap);
}

void hardware_file(const struct hardware *h, const char *path, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	put(hardware_path(h, path), fmt, ap);
	va_end(ap);
}

void hardware_environ(const struct hardware *h, const char *path, const char *text)
{
	const char *p = hardware_path(h, path);
	FILE *f;

	make_parents(p);
	f = fopen(p, "w");
	if (f == NULL)
		die("write", p);
	for (const char *c = text; *c != '\0'; c++)
		fputc(*c == '\n' ? '\0' : *c, f);
	fclose(f);
}

void hardware_mkdir(const struct hardware *h, const char *path)
{
	char with_slash[512];

	snprintf(with_slash, sizeof(with_slash), "%s/", hardware_path(h, path));
	make_parents(with_slash);
}

void hardware_remove(const struct hardware *h, const char *path)
{
	nftw(hardware_path(h, path), remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

void hardware_link(const struct hardware *h, const char *path, const char *target)
{
	const char *p = hardware_path(h, path);

	make_parents(p);
	unlink(p);
	if (symlink(target, p) != 0)
		die("link", p);
}

char *hardware_read(const struct hardware *h, const char *path)
{
	FILE *f = fopen(hardware_path(h, path), "r");
	char *text = calloc(1, 65536);

	if (text == NULL)
		die("read", path);
	if (f != NULL) {
		(void)!fread(text, 1, 65535, f);
		fclose(f);
	}
	return text;
}

bool hardware_exists(const struct hardware *h, const char *path)
{
	struct stat st;

	return lstat(hardware_path(h, path), &st) == 0;
}
