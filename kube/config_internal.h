/* Shared by config.c and config_yaml.c. */
#ifndef TESSERA_KUBE_CONFIG_INTERNAL_H
#define TESSERA_KUBE_CONFIG_INTERNAL_H

#include "kube/config.h"

/* Is url one that we can use: http or https, a host, neither user nor query? The message is
 * "<field>: ...". *ret: without '/' at the end, malloc'ed. */
int ku_config_check_server(const char *url, const char *field, char **ret, struct err *err);

/* Is url a proxy that we can use: http, https or socks5, as in client-go? */
int ku_config_check_proxy(const char *url, const char *field, struct err *err);

/* Is s a token that a header may hold? */
int ku_config_check_token(const char *s, const char *field, struct err *err);

/* PEM text from base64 ("...-data"). */
int ku_config_pem_data(const char *base64, const char *field, struct ku_pem *ret, struct err *err);
/* PEM file, read once to see that it is one. dir: folder that a relative path starts from. */
int ku_config_pem_file(const char *path, const char *dir, const char *field, struct ku_pem *ret,
		       struct err *err);
/* dir/path, or path where it is absolute; malloc'ed, NULL: no memory. */
char *ku_config_join(const char *dir, const char *path);

/* What must hold between the fields: key with certificate, insecure without CA. */
int ku_config_check(const struct ku_config *c, const char *cluster, const char *user,
		    struct err *err);

#endif
