"""A notebook whose kernel lives in a sandbox: a kernel provisioner for Jupyter (`sandboxer[jupyter]`).

`python -m sandboxer.sdk.adapters.jupyter` adds the kernel "Python (sandboxer)" to Jupyter; its `kernel.json`
says in `metadata.kernel_provisioner.config` what its sandboxes are made of.
"""
