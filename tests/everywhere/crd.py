"""crd.py CRD.yaml MANIFEST.yaml -- is the manifest what a CustomResourceDefinition's schema takes?  As the API server validates it: unknown
fields are refused (kubectl's --validate=strict), CEL rules (x-kubernetes-validations) are not evaluated.  Prints what is wrong."""
import sys

import jsonschema
import yaml


def closed(schema):
    """OpenAPI as JSON Schema: objects with properties have no others; int-or-string is either."""
    if isinstance(schema, list):
        return [closed(s) for s in schema]
    if not isinstance(schema, dict):
        return schema
    out = {k: closed(v) if k in ("properties", "items", "additionalProperties", "anyOf", "allOf", "oneOf", "not") else v for k, v in schema.items()}
    if "properties" in schema:
        out["properties"] = {k: closed(v) for k, v in schema["properties"].items()}
    if schema.get("x-kubernetes-int-or-string"):
        out.pop("type", None)
        out["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    if "properties" in schema and "additionalProperties" not in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
        out["additionalProperties"] = False
    return out


def main(crd, manifest):
    crd, manifest = yaml.safe_load(open(crd)), yaml.safe_load(open(manifest))
    group, version = manifest["apiVersion"].split("/")
    if (crd["spec"]["group"], crd["spec"]["names"]["kind"]) != (group, manifest["kind"]):
        sys.exit(print(f"{manifest['apiVersion']} {manifest['kind']} is not of this definition"))
    found = [v for v in crd["spec"]["versions"] if v["name"] == version and v["served"]]
    if not found:
        sys.exit(print(f"version {version} is not served"))
    schema = closed(found[0]["schema"]["openAPIV3Schema"])
    schema["properties"]["metadata"] = {"type": "object"}
    for error in jsonschema.Draft202012Validator(schema).iter_errors(manifest):
        print("/".join(map(str, error.absolute_path)) + ": " + error.message[:200])


main(*sys.argv[1:])
