/* Everything of kube/ in one include. */
#ifndef TESSERA_KUBE_H
#define TESSERA_KUBE_H

#include "kube/bind.h"
#include "kube/client.h"
#include "kube/client_path.h"
#include "kube/client_status.h"
#include "kube/config.h"
#include "kube/event.h"
#include "kube/lease.h"
#include "kube/load.h"
#include "kube/object.h"
#include "kube/reflector.h"

#endif
