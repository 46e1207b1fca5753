/* Typed look-ups for the decoders of this folder. A path is what the message starts with
 * ("spec.nodeName"); null is the same as absent, as in Go. */
#ifndef TESSERA_KUBE_OBJECT_INTERNAL_H
#define TESSERA_KUBE_OBJECT_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/quantity.h"
#include "kube/object.h"

#define KU_INVENTORY_KEY "tessera.dev/inventory"

/* Room for the text of a number. */
#define KU_NUMBER_CAP 32

/* "<path>: is a string, not a number" and such. */
int ku_wrong_type(const cJSON *v, const char *path, const char *want, struct err *err);
/* Puts path parts before the message: "items[3]." and "spec.x: ..." give "items[3].spec.x: ...". */
int ku_err_path(struct err *err, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
int ku_nomem(struct err *err);

/* Each sets *ret to the child or to the value for absence (NULL, "", dflt) and returns 0, or
 * ERR_INVALID for another type (ERR_RANGE for a number outside [min, max]). */
int ku_get_object(const cJSON *obj, const char *name, const char *path, const cJSON **ret,
		  struct err *err);
int ku_get_array(const cJSON *obj, const char *name, const char *path, const cJSON **ret,
		 struct err *err);
int ku_get_string(const cJSON *obj, const char *name, const char *path, const char **ret,
		  struct err *err); /* points into the tree */
int ku_get_bool(const cJSON *obj, const char *name, const char *path, bool dflt, bool *ret,
		struct err *err);
int ku_get_int(const cJSON *obj, const char *name, const char *path, int64_t min, int64_t max,
	       int64_t dflt, int64_t *ret, struct err *err);

/* As ku_get_string(), copied to the arena; ERR_NOMEM. */
int ku_copy_string(const cJSON *obj, const char *name, const char *path, struct ku_arena *a,
		   const char **ret, struct err *err);

/* The text of a quantity: a string, or a number in its shortest form. buf is used for numbers. */
int ku_quantity_text(const cJSON *v, const char *path, char buf[KU_NUMBER_CAP], const char **ret,
		     struct err *err);
/* A quantity member; absent: *ret = 0 and *ret_given = false. ret_given may be NULL. */
int ku_get_quantity(const cJSON *obj, const char *name, const char *path, enum quantity_unit unit,
		    int64_t *ret, bool *ret_given, struct err *err);

/* An object of strings (quantities: or numbers) as pairs in the arena, sorted by key; of equal keys
 * the last one. */
int ku_copy_map(const cJSON *obj, const char *path, bool quantities, struct ku_arena *a,
		struct st_kv **ret, size_t *ret_count, struct err *err);

/* Fills gpus, product and from_inventory from the text of an inventory. After an error *ret is as
 * before; the message starts with the path in the inventory. ERR_NOMEM is the caller's too. */
int ku_inventory_decode(const char *text, struct ku_arena *a, struct st_node_spec *ret,
			struct err *err);

#endif
