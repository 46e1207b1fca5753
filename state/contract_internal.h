/* Shared by the files of the annotation contract and by their tests; not for other folders. */
#ifndef TESSERA_STATE_CONTRACT_INTERNAL_H
#define TESSERA_STATE_CONTRACT_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "state/contract.h"

#define CONTRACT_PREFIX "nvidia.com/container."
#define CONTRACT_TESSERA_DOMAIN "tessera.dev/"
#define CONTRACT_TESSERA_PREFIX CONTRACT_TESSERA_DOMAIN "container."
#define CONTRACT_ALLOCATION CONTRACT_TESSERA_DOMAIN "allocation"
#define CONTRACT_CDI "k8s.device-plugin.nvidia.com/gpu="
#define CONTRACT_VERSION "v1"
#define CONTRACT_NAME_MAX 63      /* the part of a key behind its '/' */
#define CONTRACT_KEY_CAP 320      /* 253 + '/' + 63, and the NUL */
#define CONTRACT_TOTAL_MAX 262144 /* bytes of all annotations of one object, keys and values */
#define CONTRACT_DIGEST_LEN 16
#define CONTRACT_REF_HASHED 29 /* bytes of the short form of a long name */

/* Keys that speak of one container. The first ones, up to CONTRACT_WRITTEN_COUNT, are what an
 * allocation consists of, in the order in which it lists them. */
enum contract_field {
	CONTRACT_DEVICES,
	CONTRACT_MEM_REQUEST,
	CONTRACT_MEM_LIMIT,
	CONTRACT_MODE,
	CONTRACT_PORTION,
	CONTRACT_PLACEMENT,
	CONTRACT_WRITTEN_COUNT,
	CONTRACT_COMPUTE_REQUEST = CONTRACT_WRITTEN_COUNT,
	CONTRACT_MIG_PROFILE,
	CONTRACT_MIG_MEMORY,
	CONTRACT_WISH,
	CONTRACT_FIELD_COUNT,
};

struct contract_field_info {
	const char *suffix; /* with its leading dot */
	char letter;        /* in the list of tessera.dev/allocation; 0 = never written */
	bool ours;          /* under tessera.dev/container. */
	bool extender_only; /* users have no business with it */
};
extern const struct contract_field_info contract_fields[CONTRACT_FIELD_COUNT];

/* What stands between the prefix and the field of a key. */
struct contract_key {
	const char *ref; /* container name, or the short form of a long one; not terminated */
	size_t ref_len;
	int field; /* enum contract_field; -1 = a suffix nobody knows */
};

/* False when the key has neither of the two prefixes. opt may be NULL here and below. */
bool contract_key_split(const char *key, const struct st_contract_options *opt,
			struct contract_key *ret);
/* Writes the key of a field. ERR_TOO_LARGE when its name part is over CONTRACT_NAME_MAX. */
int contract_key_format(const struct st_contract_options *opt, enum contract_field field,
			const char *ref, char buf[CONTRACT_KEY_CAP], struct err *err);
/* Bytes of the name part of a key: what is behind the first '/'. */
size_t contract_name_len(const char *key);
/* Longest container name for which the key of that field can be written. */
int contract_container_max(const struct st_contract_options *opt, enum contract_field field);

/* How keys of these fields (a bit each) name the container: by its name where every key can be
 * written, else by 16 characters of it, '_' (no container name has one) and a hash. */
void contract_ref(const struct st_contract_options *opt, const char *container, unsigned fields,
		  char ref[ST_CONTAINER_CAP]);

/* The annotation with that key, of several the last one (as the API server reads them); or NULL. */
const struct st_kv *contract_find(const struct st_pod_spec *pod, const char *key);
/* The container's index in the pod, or pod->container_count. */
size_t contract_container_find(const struct st_pod_spec *pod, const char *name, size_t len);

/* Digest over node, list and the pairs, which it sorts by key. 16 hex digits and a NUL. */
void contract_digest(const char *node, const char *list, size_t list_len, struct st_kv *kv,
		     size_t count, char digest[CONTRACT_DIGEST_LEN + 1]);

/* "1g.10gb", "1g.10gb+me", "2g.48gb-me": the shape of a GPU instance profile's name. */
bool contract_profile_valid(const char *name, size_t len);

/* Text from outside as a message may show it: cut, and only printable ASCII. */
struct contract_shown {
	char text[100];
};
const char *contract_show(const char *s, size_t len, struct contract_shown *buf);

#endif
