/* Shared by doctor*.c; not for others. */
#ifndef TESSERA_ENFORCER_DOCTOR_INTERNAL_H
#define TESSERA_ENFORCER_DOCTOR_INTERNAL_H

#include "enforcer/doctor.h"

typedef enum en_check_result (*en_check_fn)(const struct en_doctor_env *env,
					    char text[EN_FINDING_CAP]);

#define DOCTOR_PATH_CAP 1024

struct en_check {
	const char *name, *title, *cause, *remedy;
	bool gates;
	en_check_fn run;
};

/* The parts of the table, each ended by a row without a name. */
extern const struct en_check doctor_gpu_checks[];
extern const struct en_check doctor_system_checks[];
extern const struct en_check doctor_mps_checks[];
extern const struct en_check doctor_limit_checks[];

/* Writes the sentence and returns the result. */
enum en_check_result doctor_say(char text[EN_FINDING_CAP], enum en_check_result r, const char *fmt,
				...) __attribute__((format(printf, 3, 4)));
/* "<root><path>"; the buffer is the caller's. */
const char *doctor_path(const struct en_doctor_env *env, const char *path,
			char buf[DOCTOR_PATH_CAP]);
/* A path below the mount of cgroup v2, without the root. */
const char *doctor_cgroup(const struct en_doctor_env *env, const char *path,
			  char buf[DOCTOR_PATH_CAP]);
/* A file's text, to be freed; NULL: cannot be read. */
char *doctor_read(const struct en_doctor_env *env, const char *path);
/* Does the list of words (separated by white space) hold this one? */
bool doctor_has_word(const char *list, const char *word);
/* Is there such a program: a path that may be executed, or a name in PATH? */
bool doctor_has_program(const char *name);

#endif
