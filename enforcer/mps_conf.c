/* The daemon's configuration file. Everything in it is ours: a server for all shares, memory accounting
 * on, clients of the default socket with contexts of their own. */
#include "enforcer/mps_internal.h"

void mps_conf_put(struct buf *b, const char *devices, bool audit_log)
{
	buf_puts(b, "schema_version = \"1.0\"\n"
		    "\n"
		    "[features.memacct]\n"
		    "enabled = true\n");
	buf_printf(b, "audit_log = %s\n", audit_log ? "true" : "false");
	buf_puts(b, "\n"
		    "[features.context-share]\n"
		    "enabled = true\n"
		    "default_socket = \"off\"\n"
		    "\n"
		    "[servers." EN_MPS_SERVER "]\n");
	if (devices != NULL)
		buf_printf(b, "allowed_devices = \"%s\"\n", devices);
}

uint64_t mps_conf_digest(const char *conf, bool legacy, bool legacy_multiuser)
{
	if (legacy)
		return legacy_multiuser ? 2 : 1;
	return hash_str(conf, 3);
}
