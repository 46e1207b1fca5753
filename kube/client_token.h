/* The bearer token: fixed, or from a file that is replaced in place (facts: the kubelet swaps a link
 * at 80 % of the token's life), so the path is opened anew each time. */
#ifndef TESSERA_KUBE_CLIENT_TOKEN_H
#define TESSERA_KUBE_CLIENT_TOKEN_H

#include <stdbool.h>

#include "base/err.h"

struct ku_token {
	char *text;       /* NULL: none; owned */
	const char *file; /* NULL: text is fixed; the configuration's */
};

/* Reads the file. After an error the old token stays. Errors of ku_config_read_token(); 0 without a
 * file. */
int ku_token_read(struct ku_token *t, bool *ret_changed, struct err *err);
void ku_token_fini(struct ku_token *t);

#endif
