/* The API's own word on an error: the Status object. */
#ifndef TESSERA_KUBE_CLIENT_STATUS_H
#define TESSERA_KUBE_CLIENT_STATUS_H

#include <stdbool.h>
#include <stddef.h>

#include <cjson/cJSON.h>

/* Texts are cut where they are too long; "" and 0 where absent. */
struct ku_status {
	int code;
	char status[16]; /* "Success" or "Failure" */
	char reason[64]; /* "Conflict", "Expired" */
	char cause[64];  /* of the first cause: "ResourceVersionTooLarge" */
	char message[512];
};

/* False (and *ret empty) where it is no Status object. */
bool ku_status_read(const cJSON *obj, struct ku_status *ret);
bool ku_status_parse(const char *body, size_t len, struct ku_status *ret);

/* The server does not know that resourceVersion yet: a replica that is behind. */
bool ku_status_version_too_large(const struct ku_status *s);

#endif
