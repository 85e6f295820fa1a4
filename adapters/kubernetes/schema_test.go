package kubernetes

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
	"sigs.k8s.io/yaml"
)

// definitions are the files in the operators' modules that define resources of kinds that aren't Kubernetes' own.
var definitions = map[string]string{
	"jobset.x-k8s.io/v1alpha2 JobSet":               "sigs.k8s.io/jobset config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml",
	"kubeflow.org/v1 PyTorchJob":                    "github.com/kubeflow/training-operator manifests/base/crds/kubeflow.org_pytorchjobs.yaml",
	"trainer.kubeflow.org/v1alpha1 TrainJob":        "github.com/kubeflow/trainer/v2 manifests/base/crds/trainer.kubeflow.org_trainjobs.yaml",
	"trainer.kubeflow.org/v1alpha1 TrainingRuntime": "github.com/kubeflow/trainer/v2 manifests/base/crds/trainer.kubeflow.org_trainingruntimes.yaml",
}

// checkSchema validates an object of such a kind by the schema of its definition, as the API server does.
func checkSchema(kind string, object []byte) error {
	module, file, ok := strings.Cut(definitions[kind], " ")
	if !ok {
		return nil
	}
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), file))
	if err != nil {
		return err
	}
	var definition struct {
		Spec struct {
			Versions []struct {
				Name   string
				Schema struct{ OpenAPIV3Schema spec.Schema }
			}
		}
	}
	if err := yaml.Unmarshal(text, &definition); err != nil {
		return err
	}
	var value any
	if err := yaml.Unmarshal(object, &value); err != nil {
		return err
	}
	for _, v := range definition.Spec.Versions {
		if strings.HasSuffix(strings.Fields(kind)[0], "/"+v.Name) {
			return errors.Join(validate.NewSchemaValidator(&v.Schema.OpenAPIV3Schema, nil, "", strfmt.Default).Validate(value).Errors...)
		}
	}
	return fmt.Errorf("%s has no such version", file)
}
