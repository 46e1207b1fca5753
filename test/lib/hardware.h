/* A node's hardware for tests: a folder of its own, the scripts of the fake driver (fake_nvml.h) and the
 * fake MPS daemon (fake_mps.h) in it, and the environment that points at them. The fakes lie beside the
 * test program. */
#ifndef TESSERA_TEST_HARDWARE_H
#define TESSERA_TEST_HARDWARE_H

#include <stdbool.h>

struct hardware {
	char dir[64];
	char build[256]; /* where the fakes are */
	char library[320], control[320], smi[320];
};

/* Makes the folder and sets the environment; without a script there is no driver. */
void hardware_init(struct hardware *h);
void hardware_fini(struct hardware *h);

/* Replaces the script of the driver, of the MPS daemon. */
void hardware_nvml(const struct hardware *h, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void hardware_mps(const struct hardware *h, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* From now on the driver hangs in every call, until the script is there again. */
void hardware_nvml_hang(const struct hardware *h);
void hardware_nvml_go_on(const struct hardware *h);
/* A file below the folder, with its folders. */
void hardware_file(const struct hardware *h, const char *path, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* The same with a NUL for each new line: /proc/PID/environ. */
void hardware_environ(const struct hardware *h, const char *path, const char *text);
void hardware_mkdir(const struct hardware *h, const char *path);
void hardware_remove(const struct hardware *h,
		     const char *path); /* file or folder with all in it */
void hardware_link(const struct hardware *h, const char *path, const char *target);
/* "<dir>/<path>"; one of the last four. */
const char *hardware_path(const struct hardware *h, const char *path);
/* A file's content, to be freed; "" where it is not there. */
char *hardware_read(const struct hardware *h, const char *path);
bool hardware_exists(const struct hardware *h, const char *path);

/* A GPU a line, by index: an A100 of 80 GiB with UUID GPU-<index>; more words may follow. */
#define HARDWARE_GPU(index, more)                                                                  \
	"gpu uuid=GPU-" #index " name=NVIDIA_A100-SXM4-80GB mem=81920 minor=" #index               \
	" bus=00000000:0" #index ":00.0 " more "\n"

/* The profiles of an A100 of 80 GiB as its driver reports them. */
#define HARDWARE_A100_MIG(index)                                                                   \
	"profile gpu=" #index " which=0 id=19 name=MIG_1g.10gb slices=1 max=7 mem=9856 size=1 "    \
	"starts=0,1,2,3,4,5,6\n"                                                                   \
	"profile gpu=" #index " which=1 id=14 name=MIG_2g.20gb slices=2 max=3 mem=19968 size=2 "   \
	"starts=0,2,4\n"                                                                           \
	"profile gpu=" #index " which=2 id=9 name=MIG_3g.40gb slices=3 max=2 mem=40320 size=4 "    \
	"starts=0,4\n"                                                                             \
	"profile gpu=" #index " which=3 id=5 name=MIG_4g.40gb slices=4 max=1 mem=40320 size=4 "    \
	"starts=0\n"                                                                               \
	"profile gpu=" #index " which=4 id=0 name=MIG_7g.80gb slices=7 max=1 mem=81008 size=8 "    \
	"starts=0\n"                                                                               \
	"profile gpu=" #index " which=7 id=20 name=MIG_1g.10gb+me slices=1 max=1 mem=9856 "        \
	"size=1 starts=0,1,2,3,4,5,6\n"                                                            \
	"profile gpu=" #index " which=9 id=15 name=MIG_1g.20gb slices=1 max=4 mem=19968 size=2 "   \
	"starts=6,4,2,0\n"

#endif
