/* NRI messages for tests: what a runtime sends, made from short structs, and the byte vectors of
 * test/unit/nri-vectors.txt. */
#ifndef TESSERA_TEST_NRI_TEXT_H
#define TESSERA_TEST_NRI_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "state/spec.h"

struct nt_pod {
	const char *id, *name, *uid, *ns;
	size_t annotation_count;
	const struct st_kv *annotations;
};

#define NT_LIST_MAX 16
struct nt_mount {
	const char *source, *target;
};
struct nt_container {
	const char *id, *pod_id, *name;
	int state;
	uint32_t pid;
	const char *cgroups_path;
	const char *env[NT_LIST_MAX]; /* NULL ends */
	struct nt_mount mounts[NT_LIST_MAX];
};

/* Payloads, appended. */
void nt_configure(struct buf *b, const char *runtime, const char *version, const char *nri_version);
void nt_container(struct buf *b, const struct nt_pod *pod, const struct nt_container *c);
void nt_state_change(struct buf *b, int event, const struct nt_pod *pod,
		     const struct nt_container *c);
void nt_synchronize(struct buf *b, size_t pod_count, const struct nt_pod *pods,
		    size_t container_count, const struct nt_container *containers, bool more);
/* adjust: the payload of a CreateContainerResponse; its adjustment is what is to be validated. */
void nt_validate(struct buf *b, const struct nt_pod *pod, const struct nt_container *c,
		 const struct buf *adjust);

/* A call of the plugin's service as Go frames it, appended. */
void nt_call(struct buf *out, uint32_t stream, const char *method, const struct buf *payload,
	     int64_t timeout_ns);

/* The payload of an answer: its status code, or 0 and the payload in *ret (appended). text may be NULL. */
int nt_answer(const void *data, size_t len, struct buf *ret, char *text, size_t text_cap);

/* The bytes of a vector. Aborts where there is none of that name. */
void nt_vector(const char *label, struct buf *ret);
/* Calls fn for each vector of the file, in order; returns their number. */
size_t nt_vectors(void (*fn)(void *ctx, const char *label, bool to_plugin, const struct buf *bytes),
		  void *ctx);

#endif
