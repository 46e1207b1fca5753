/* Shared by fake_nvml.c and fake_nvml_mig.c. */
#ifndef TESSERA_TEST_FAKE_NVML_INTERNAL_H
#define TESSERA_TEST_FAKE_NVML_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>

#include "enforcer/nvml_abi.h"

#define LINES_MAX 1024
#define WORDS_MAX 24
#define GPUS_MAX 32

struct line {
	char text[512];
	char *words[WORDS_MAX]; /* words[0]: what the line is about */
	size_t count;
};
extern struct line lines[LINES_MAX]; /* of the script, as read by the last enter() */

/* Changes of the script, in memory until write_script(). text NULL: the word goes. */
void set_word(size_t line, const char *key, const char *text);
size_t add_line(const char *text);
void write_script(void);

/* Handles are addresses in these. */
extern char device_handles[GPUS_MAX];
extern char mig_handles[LINES_MAX], gi_handles[LINES_MAX], ci_handles[LINES_MAX];

/* The entry of every call: takes the lock, reads the script, waits and fails where it says so. Whatever
 * it returns, leave() follows with the code to return. */
int enter(const char *call, int gpu);
int leave(int code);

/* A line's "key=..." as text (NULL: not there) and as number. */
const char *value(const struct line *l, const char *key);
long long number(const struct line *l, const char *key, long long dflt);
/* The nth line of that kind that speaks of that GPU (-2: any), NULL past the end. */
const struct line *find(const char *kind, int gpu, size_t nth);
const struct line *gpu_line(int gpu);
/* The index of a GPU's handle; -1 for others. */
int gpu_of(const struct en_nvml_device *d);
/* Copies with '_' as blank; an NVML code. */
int copy_text(const char *from, char *to, unsigned cap);

#define PROTOTYPE(needed, member, symbol, args) int symbol args;
NV_CALLS(PROTOTYPE)
#undef PROTOTYPE

#endif
