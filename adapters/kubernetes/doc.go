// Package kubernetes holds the manifests of examples/clusters/kubernetes to the types of Kubernetes' API, of JobSet and
// of Kubeflow's operators. It has tests only, and is a module of its own, since the core needs none of these.
//
// Kustomize builds each folder there. The result must decode strictly into the types, and pass the schemas of the
// operators' resource definitions. The parts of its pods must fit together. The pods then run in name spaces of Linux,
// with the root, user, volumes, variables and names that a cluster would give them.
package kubernetes
